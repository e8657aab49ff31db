from pathlib import Path

import pytest

from aaren.datasets.settings import BUILT_IN
from aaren.engine.setting import find_setting, import_setting
from aaren.errors import ConfigError
from support import toy_task


def test_a_module_of_the_users_own_is_a_setting() -> None:
    assert import_setting("support.toy_task") is toy_task.SETTING


def test_unknown_setting_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'forecastin'; did you mean 'forecasting'\?"):
        find_setting("forecastin")


def test_missing_module_is_named() -> None:
    with pytest.raises(ConfigError, match="there is no module 'nowhere' to import"):
        import_setting("nowhere.at_all")


def test_module_without_a_task_is_named() -> None:
    with pytest.raises(ConfigError, match=r"the module support\.markdown has no SETTING"):
        import_setting("support.markdown")


def test_a_name_alone_imports_nothing() -> None:
    with pytest.raises(ConfigError, match=r"name it yourself: `aaren --import antigravity\.task"):
        find_setting("antigravity.task")


@pytest.mark.parametrize("name", ["..", "../../x", ".x", "a..b", "a/b.c", "x.", "a b.c"])
def test_what_is_no_module_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no name of a module"):
        import_setting(name)


def test_a_module_that_fails_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing_setting").mkdir()
    (tmp_path / "failing_setting" / "task.py").write_text("x = 1\nx / 0\n")
    with pytest.raises(ConfigError, match=r"failed in .*task\.py, line 2: ZeroDivisionError"):
        import_setting("failing_setting.task")


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_setting_says_what_it_is(name: str) -> None:
    setting = find_setting(name)
    assert setting.name == name
    assert all(report.count(".") == 1 for report in setting.reports)


def test_a_protocol_is_of_a_profile_or_of_one_of_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = find_setting("events")
    monkeypatch.setattr(setting, "protocols", {"cpu/gru": 4, "cpu": 2}, raising=False)
    asked = [("cpu", "gru"), ("cpu", "aaren"), ("paper", "gru"), ("custom", "gru"), ("custom", "aaren")]
    assert [setting.protocol(*one) for one in asked] == [4, 2, 1, 4, 2]
