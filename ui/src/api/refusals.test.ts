import { describe, expect, test } from "vitest";

import { NO_JOBMANAGER, STANDBY_HEADER, isJson, isOfAnother, sentencesOf, wantsToken } from "./refusals";

const WHY = "this master stands by: nobody leads now";

describe("who refuses, and what is said of it", () => {
  test.each<[string, number, unknown, string]>([
    ["the JobManager", 409, { errors: ["the job has ended"] }, "the job has ended"],
    ["a standby", 503, { errors: [WHY] }, WHY],
    ["a proxy without a login", 401, "<h1>Unauthorized</h1>", "asks who you are (401)"],
    ["a proxy that speaks JSON of its own", 401, { message: "no token" }, "asks who you are (401)"],
    ["a proxy of a company", 407, undefined, "asks who you are (407)"],
    ["a login of somebody else", 403, { error: "forbidden" }, "does not let you pass (403)"],
    ["a proxy without a server behind it", 502, "", "does not reach it (502)"],
    ["an empty list", 504, { errors: [] }, "does not reach it (504)"],
    ["a list of something else", 503, { errors: [{ code: 1 }] }, "does not reach it (503)"],
    ["null", 500, null, "The answer was 500."],
  ])("%s", (_, status, body, part) => {
    expect(sentencesOf(status, body).join()).toContain(part);
  });

  test.each<[string, number, Record<string, string>, boolean]>([
    ["no token", 401, {}, true],
    ["a token that is refused", 403, {}, true],
    ["a proxy that reaches nobody", 502, {}, true],
    ["a standby without a leader", 503, { [STANDBY_HEADER]: "1" }, true],
    ["too many streams", 503, {}, false],
    ["no such path", 404, {}, false],
    ["a defect", 500, {}, false],
  ])("%s", (_, status, headers, expected) => {
    expect(isOfAnother(new Response(null, { status, headers }))).toBe(expected);
  });

  const [own, json] = [{ "www-authenticate": "Bearer" }, { "content-type": "application/json" }];
  test.each<[string, number, Record<string, string>, string, string | null]>([
    ["the JobManager", 401, { ...own, ...json }, '{"errors": ["it was revoked"]}', "it was revoked"],
    ["another status", 403, { ...own, ...json }, '{"errors": ["too small"]}', null],
    ["a proxy with passwords", 401, { "www-authenticate": "Basic", ...json }, '{"errors": ["no"]}', null],
    ["a proxy without a scheme", 401, json, '{"errors": ["no"]}', null],
    ["a gateway with tokens", 401, { ...own, ...json }, '{"errors": [{"code": 1}]}', null],
    ["a page in place of JSON", 401, { ...own, "content-type": "text/html" }, "<h1>no</h1>", null],
    ["what says it is JSON", 401, { ...own, ...json }, "no", null],
    ["an answer", 200, { ...own, ...json }, '{"errors": ["no"]}', null],
  ])("%s wants a token, or not", async (_, status, headers, body, why) => {
    const answer = new Response(body, { status, headers });
    expect(await wantsToken(answer)).toBe(why);
    expect(await answer.text()).toBe(body);
  });

  test.each([
    ["application/json; charset=UTF-8", true],
    ["application/problem+json", true],
    ["text/html", false],
    [null, false],
  ])("an answer of %s", (type, expected) => {
    const answer = new Response("", { headers: type === null ? {} : { "content-type": type } });
    if (type === null) answer.headers.delete("content-type");
    expect([isJson(answer), NO_JOBMANAGER.length > 0]).toEqual([expected, true]);
  });
});
