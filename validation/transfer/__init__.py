"""The transfer suite: how far off predictions are on sources of which no row was in any fit.

`case.py` has the nouns and predicts one case, `language_models.py` and `one_gpu.py` read the sources, and
`judging.py` makes the tables. For people at work on a model of something:

    python -m validation.transfer --source llm_foundry --worst 10
"""
