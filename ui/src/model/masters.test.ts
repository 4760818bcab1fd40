import { describe, expect, test } from "vitest";

import { elsewhere } from "./masters";

const HERE = "http://127.0.0.1:8081";
const master = (rest_url: string | null) => ({ process: "host-1", leads: false, rest_url });

describe("where else the pages are", () => {
  test.each<[string, (string | null)[] | null, string[]]>([
    ["ZooKeeper does not answer", null, []],
    ["one master", [HERE], []],
    ["a standby", [HERE, "http://127.0.0.1:8082"], ["http://127.0.0.1:8082"]],
    ["with a path, which is not that of pages", ["https://host/x?y"], ["https://host"]],
    ["one of an older version", [HERE, null], []],
    ["one that has come twice", ["http://a:1", "http://a:1/"], ["http://a:1"]],
    ["what is no address", ["javascript:alert(1)", "file:///etc/passwd", "nothing", "data:text/html,x"], []],
  ])("%s", (_, urls, origins) => {
    const contenders = urls?.map(master) ?? null;
    expect(elsewhere(contenders, HERE).map(({ origin }) => origin)).toEqual(origins);
  });
});
