"""openapi.yaml is whole: what the source takes and answers is in it, with words, and nothing else is."""
import os
import re
import subprocess
import sys

import pytest
import yaml

import harness

NATIVE = harness.ROOT / "src" / "front" / "native"
METHODS = ("get", "put", "post", "patch", "delete")
DOCUMENT = yaml.safe_load((NATIVE / "openapi.yaml").read_text())
OPERATIONS = [(method, path) for path, item in DOCUMENT["paths"].items() for method in METHODS
              if method in item]


def resolved(node):
    while "$ref" in node:
        reference, node = node["$ref"], DOCUMENT
        for part in reference.lstrip("#/").split("/"):
            node = node[part]
    return node


def parameters(method, path):
    item = DOCUMENT["paths"][path]
    return [resolved(one) for one in [*item.get("parameters", []),
                                      *item[method].get("parameters", [])]]


# ---- the form ----

def test_the_document_is_valid_for_a_validator_that_is_not_ours():
    done = subprocess.run([sys.executable, "-m", "openapi_spec_validator", NATIVE / "openapi.yaml"],
                          env={**os.environ, "PYTHONPATH": str(harness.BUILD / "python-openapi")}, capture_output=True,
                          timeout=100 * harness.PATIENCE, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def enumerations(node):
    if isinstance(node, dict) and isinstance(node.get("enum"), list):
        yield node["enum"]
    if isinstance(node, (dict, list)):
        for each in node.values() if isinstance(node, dict) else node:
            yield from enumerations(each)


def test_no_value_is_listed_twice():
    lists = list(enumerations(DOCUMENT))
    assert len(lists) > 10
    assert [[value for value in values if values.count(value) > 1] for values in lists] == [[] for _ in lists]


# ---- the source ----

def handlers():
    """Of each route, the name of its handler."""
    text = (NATIVE / "routes.c").read_text()
    defined = dict(re.findall(r"#define (SANDBOX|PROCESS|FILES|KERNEL) (.*)", text))
    found = {}
    for method, pattern, handler in re.findall(r'\{\{"([A-Z]+|\*)", ([^,]+), (\w+),', text):
        for _ in range(3):
            for name, value in defined.items():
                pattern = re.sub(rf"\b{name}\b", lambda _, value=value: value, pattern)
        path = "".join(re.findall(r'"([^"]*)"', pattern)).replace("/**", "/{path}")
        found[method.lower().replace("*", "get"), path] = handler
    return found


def functions():
    """Of each function its text, the handlers among them."""
    found = {}
    for path in NATIVE.glob("*.c"):
        for kind, name, body in re.findall(r"^(HANDLER\(|[a-z][\w \*]*?\b)(\w+)[()][^;{}]*?\n\{\n(.*?)^\}",
                                           path.read_text(), re.M | re.S):
            found[name if kind == "HANDLER(" else (path.name, name)] = (path.name, body)
    return found


def known_of(handler, source):
    """The query parameters that it takes: of its own list, or of the function of its file that has it."""
    file, body = source[handler]
    bodies = [body, *(source[file, name][1] for name in re.findall(r"\b(\w+)\(", body)
                      if (file, name) in source)]
    lists = [re.findall(r'"(\w+)"', known) for text in bodies
             for known in re.findall(r"known\[\] = \{(.*?)\}", text, re.S)]
    assert len(lists) <= 1, (handler, lists)
    return set(lists[0]) if lists else set()


def test_the_query_of_every_route_is_in_the_document():
    source, routes = functions(), handlers()
    assert set(routes) == set(OPERATIONS)
    lists = {route: known_of(handler, source) for route, handler in routes.items()}
    assert sum(bool(known) for known in lists.values()) > 15
    for (method, path), known in lists.items():
        documented = {one["name"] for one in parameters(method, path) if one["in"] == "query"}
        assert documented == known, (method, path)


def test_what_the_path_names_is_in_the_document():
    for method, path in OPERATIONS:
        documented = {one["name"] for one in parameters(method, path) if one["in"] == "path"}
        assert documented == set(re.findall(r"\{(\w+)\}", path)), (method, path)


@pytest.mark.parametrize("method,path", OPERATIONS)
def test_every_operation_says_what_it_does_and_answers(method, path):
    operation = DOCUMENT["paths"][path][method]
    assert operation["summary"].endswith(".") and operation["operationId"] and operation["tags"]
    for one in parameters(method, path):
        assert resolved(one["schema"]).get("type"), one
    answers = operation["responses"]
    assert any(str(status)[0] in "12" for status in answers)
    # Everybody may be refused at the door: with "default" all problems are there.
    assert "default" in answers or operation["security"] == []
    for status, answer in answers.items():
        assert resolved(answer)["description"], status
        if status == "default" or int(status) >= 400:
            assert list(resolved(answer)["content"]) == ["application/problem+json"], status


def test_operation_ids_are_unique():
    names = [DOCUMENT["paths"][path][method]["operationId"] for method, path in OPERATIONS]
    assert len(names) == len(set(names))


def test_every_json_body_has_an_example():
    """Which the tester of the contract sends."""
    for method, path in OPERATIONS:
        body = resolved(DOCUMENT["paths"][path][method].get("requestBody", {}))
        content = body.get("content", {}).get("application/json")
        assert content is None or "example" in content, (method, path)


def request_schemas():
    """Every object schema that a JSON body may hold, by where it is."""
    def walk(node, where):
        node = resolved(node)
        if "properties" in node and "additionalProperties" in node or where.endswith("Spec"):
            yield where, node
        for name, inner in node.get("properties", {}).items():
            yield from walk(inner, f"{where}.{name}")
        for part in node.get("allOf", []):
            yield from walk(part, where)

    for method, path in OPERATIONS:
        body = resolved(DOCUMENT["paths"][path][method].get("requestBody", {}))
        for content in body.get("content", {}).values():
            if "example" in content:
                yield from walk(content["schema"], f"{method} {path}")


def may_be_null(schema):
    schema = resolved(schema)
    kinds = schema.get("type")
    return ("null" in ([kinds] if isinstance(kinds, str) else kinds or []) or
            any(may_be_null(one) for one in schema.get("oneOf", [])))


def test_null_is_as_if_the_field_were_not_there():
    seen = 0
    for where, schema in request_schemas():
        for name, inner in schema.get("properties", {}).items():
            seen += 1
            assert name in schema.get("required", []) or may_be_null(inner), (where, name)
    assert seen > 60
