// What a page written as HTML gains where scripts run: colours to switch, and links that open what is folded.
document.querySelector("nav").append(themeButton());
addEventListener("hashchange", followLink);
followLink();
