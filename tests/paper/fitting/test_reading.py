"""Tables in files: what is read, and the sentence for what cannot be."""

import re

import pytest

from lpunits.paper.fitting.reading import number, read


@pytest.fixture
def written(tmp_path):
    def write(data, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_separator_is_that_of_the_first_line(written, separator, end):
    lines = ["a|b|c d", '1| "x|y"|', "", "NA|é\x20|nan", "3|2|?"]
    table = read(written(end.join(lines).replace("|", separator) + end))
    text = f"x{separator}y"
    assert table.columns == {
        "a": ["1", None, "3"],
        "b": [text, "é", "2"],
        "c d": [None, None, None],
    }
    assert [table.place(row) for row in range(3)] == ["line 2", "line 4", "line 5"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_quoted_names_are_read_as_other_programs_write_them(written, separator):
    rows = [['""', '"x, y"', '"b ""c"""'], ['"1"', "2", '"z"']]
    table = read(written("\n".join(separator.join(row) for row in rows)))
    assert table.columns == {"column 1": ["1"], "x, y": ["2"], 'b "c"': ["z"]}


def test_a_separator_can_be_given(written):
    assert read(written("a:b,c\n1:2,3\n"), ":").columns == {"a": ["1"], "b,c": ["2,3"]}
    with pytest.raises(ValueError, match="separator must be one character, got '::'"):
        read(written("a:b\n1:2\n"), "::")


def test_names_are_stripped_and_those_without_are_counted(written):
    assert list(read(written("\ufeff, b ,\n1,2,3\n")).columns) == ["column 1", "b", "column 3"]
    assert list(read(written("0,1,2\n1,2,3\n")).columns) == ["0", "1", "2"]


def test_lines_inside_quotes_are_counted(written):
    table = read(written('a,b\n"1\n2",3\n4,5\n'))
    assert table.columns["a"] == ["1\n2", "4"]
    assert table.place(1) == "line 4"


def test_a_decimal_comma_is_that_of_files_with_semicolons(written):
    table = read(written("a;b;c\n1,5;1,5;1\n-2;x,y;2\n;3;3\n"))
    assert table.columns == {
        "a": ["1.5", "-2", None],
        "b": ["1,5", "x,y", "3"],
        "c": ["1", "2", "3"],
    }


def test_an_empty_line_of_a_table_of_one_column_is_a_missing_value(written):
    assert read(written("a\n1\n\n3\n\n\n")).columns == {"a": ["1", None, "3"]}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b\n", "has names of columns, but no row of values"),
        (b"a,b,a\n1,2,3\n", "has 2 columns of the name 'a'"),
        (b"a,b\n1,2\n3\n", "line 3: 1 values, but the first line names 2 columns"),
        (b"a,b\n1,2,3\n", "line 2: 3 values, but the first line names 2 columns"),
        (b"a,b\n1,caf\xe9\n", "line 2: the byte 0xe9 is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16"),
        (b"a,b\n1,\0\n", "has bytes of 0"),
        (b'a,b\n1,"2\n3,4\n', r"line 2: not valid csv \(unexpected end of data\)"),
        (b'a,b\n1,"2"3\n', "line 2: not valid csv"),
        (b"a,b\n1," + b"x" * 200_000, "line 2: not valid csv .field larger"),
        (b"1.5,2,3\n4,5,6\n", "the first line must name the columns, got the numbers 1.5, 2, 3"),
        (b"PK\x03\x04....", "is an Excel or zip file"),
        (b"PAR1....PAR1", "not a valid parquet file"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(written, data, sentence):
    pytest.importorskip("polars", reason="needs polars")
    with pytest.raises(ValueError, match=f"table.csv.*{sentence}") as error:
        read(written(data))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_what_is_no_file(tmp_path):
    with pytest.raises(ValueError, match="is a folder, a csv or parquet file is expected"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"there is no file .*none"):
        read(tmp_path / "none")


def test_numbers():
    assert [number(t) for t in ("1", "-1e3", " 2 ", "x", "1_0", None)] == [
        1.0,
        -1000.0,
        2.0,
        None,
        None,
        None,
    ]


def frame(**columns):
    polars = pytest.importorskip("polars", reason="needs polars")
    return polars.DataFrame(columns)


def test_parquet_is_read_as_csv_is(tmp_path):
    made = frame(a=[1.5, None, 0.1], b=[True, None, False], c=["x", "NA", " y"], d=[1, 2, 3])
    made.write_parquet(tmp_path / "a")
    made.write_csv(tmp_path / "b")
    table, text = read(tmp_path / "a"), read(tmp_path / "b")
    assert table.columns == {
        "a": ["1.5", None, "0.1"],
        "b": ["True", None, "False"],
        "c": ["x", None, "y"],
        "d": ["1", "2", "3"],
    }
    assert table.columns["a"] == text.columns["a"]
    assert table.place(1) == "row 2"


def test_parquet_that_is_no_table_of_values(tmp_path):
    path = tmp_path / "table.parquet"
    frame(a=[[1], [2]]).write_parquet(path)
    with pytest.raises(ValueError, match="the column 'a' holds List"):
        read(path)
    frame(a=[1]).head(0).write_parquet(path)
    with pytest.raises(ValueError, match="has no row of values"):
        read(path)
    frame(a=list(range(1000))).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(ValueError, match="not a valid parquet file"):
        read(path)


def test_parquet_without_polars_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    (tmp_path / "table").write_bytes(b"PAR1")
    sentence = "is a parquet file, to read it install lpunits[parquet] (or save it as csv)"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        read(tmp_path / "table")
