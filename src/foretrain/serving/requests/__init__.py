"""The requests of all verbs as plain data: names, numbers and paths, each option declared once.

Fields that several verbs share are grouped in classes of their own; a request is a combination of groups.
`foretrain.decoding` reads them; `foretrain.serving.verbs` asks the core what they describe.
"""
