"""History and verdicts. Pure: events come in, what they prove comes out; nothing else is touched.

`history` is the schema of one event and its JSON line; `promise` says before a run what must hold;
`checker` folds a history into a `Judgement`. Page: docs/design/judge.md.
"""
