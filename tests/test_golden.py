"""The fixture for golden texts refuses what is missing or different, and writes when told to."""

import pytest


@pytest.fixture
def folder(golden, tmp_path, monkeypatch):
    monkeypatch.setitem(golden.__globals__, "GOLDEN", tmp_path)
    return tmp_path


@pytest.fixture
def updating(request):
    return request.config.getoption("--update-golden")


def test_a_missing_text_says_how_to_write_it(golden, folder, updating):
    if updating:
        golden("a/b", "text\n")
        assert (folder / "a" / "b.txt").read_text(encoding="utf-8") == "text\n"
    else:
        with pytest.raises(pytest.fail.Exception, match=r"b.txt is missing; to write it: pytest .* --update-golden"):
            golden("a/b", "text\n")


def test_a_different_text_is_shown(golden, folder, updating):
    (folder / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    if updating:
        golden("a", "one\nthree\n")
        assert (folder / "a.txt").read_text(encoding="utf-8") == "one\nthree\n"
    else:
        golden("a", "one\ntwo\n")
        with pytest.raises(pytest.fail.Exception, match=r"(?s)-two\n\+three.*--update-golden"):
            golden("a", "one\nthree\n")
