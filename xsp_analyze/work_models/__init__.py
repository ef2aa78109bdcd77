"""What operators have to do at least, from the tensors they are called with: flop, and bytes read and written.

`registry.shipped().of(name)` is the model of an operator; `call.call_of` a call; `Model.work(call)` its least work.
Nothing here knows of traces: `frames.modelled_calls` asks for the calls of one.
"""
