"""x"""


def connect(app):
    pass
