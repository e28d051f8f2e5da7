from tests.page.conftest import stage

__all__ = ["stage"]
