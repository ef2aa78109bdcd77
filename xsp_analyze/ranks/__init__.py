"""Many ranks of one job: what each says by itself, and what they say together, without holding all of them at once."""
