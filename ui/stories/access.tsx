/** Who is signed in, the page for whom nobody is, and what a scope leaves out. */
import type { ReactNode } from "react";

import type { Out } from "../src/api/session";
import { SCOPES, mayOf } from "../src/model/access";
import { MadeToken, NewTokenDialog } from "../src/pages/tokens/NewTokenDialog";
import { MadeJoinToken, NewJoinDialog } from "../src/pages/hosts/NewJoinDialog";
import { JoinTokens } from "../src/pages/hosts/JoinTokens";
import { RevokeDialog } from "../src/pages/tokens/RevokeDialog";
import { DrainDialog } from "../src/pages/workers/DrainDialog";
import { NoChanges } from "../src/parts/NoChanges";
import { Gate } from "../src/shell/Gate";
import { SignIn } from "../src/shell/SignIn";
import { TokenForm } from "../src/shell/TokenForm";
import { CERTIFICATES, NAMES, TOKENS, identity } from "./fixtures";
import { type Bodies, FULL, RECORDED, answered, recorded } from "./recorded";
import { type Answer, NOBODY, Page, Queries, type Story } from "./story";

const nothing = () => undefined;

function drawn(group: string, name: string, shows: string, show: () => ReactNode): Story {
  return { group, name, shows, show: () => <Queries>{show()}</Queries>, answers: NOBODY };
}

const FIRST: Out = { is: "out", why: null, isRefusal: false, code: null, goesOn: false };
const USED = "the code of this link was used, or has expired";
const AWAY = "The JobManager does not answer. It may have ended, or another one leads now.";
const REVOKED = `this cluster answers its owner, and who has a token: its token ${NAMES.html} was revoked`;

const SIGN_IN: readonly Story[] = (
  [
    ["nobody was signed in", "unistream token create", {}],
    ["a link that was used", USED, { why: USED, isRefusal: true }],
    [
      "a link that was used, by somebody who is signed in",
      "Go on as before",
      { why: USED, isRefusal: true, goesOn: true },
    ],
    ["a link that nobody answers to", "Try the link again", { why: AWAY, isRefusal: true, code: "c" }],
    ["a token that was revoked", "onerror", { why: REVOKED, isRefusal: true }],
    ["signed out", "You have signed out", { why: "You have signed out." }],
  ] as const
).map(([name, shows, more]) => drawn("Sign in", name, shows, () => <SignIn out={{ ...FIRST, ...more }} />));

function form(name: string, shows: string, isAsking: boolean, wrong: string | null): Story {
  const show = () => (
    <main className="sign-in">
      <TokenForm isAsking={isAsking} wrong={wrong} submit={nothing} />
    </main>
  );
  return drawn("Field for a token", name, shows, show);
}

const ME = identity("admin");
const JOINS = {
  id: "",
  scope: "join",
  createdMs: 1,
  expiresMs: 1e12,
  revokedMs: null,
  usedMs: 1,
  usesLeft: 59,
} as const;
const IDENTITIES = [
  ...SCOPES.map((scope) => [scope, identity(scope)] as const),
  ["for ever", identity("read", { expiresMs: null })] as const,
  ["a name without an end", identity("read", { name: NAMES.long })] as const,
];

function page(name: string, path: string, shows: string, bodies: Partial<Bodies>, changes = true): Story {
  const answers = answered({ ...FULL, ...bodies });
  const off = { "/config": { body: { features: { "web-cancel": false } } } };
  return {
    group: "By scope",
    name,
    shows,
    show: () => <Page path={path} />,
    answers: { paths: { ...answers, ...(changes ? {} : off) }, otherwise: "never" },
  };
}

/** How a request that changes something goes on; the words of the one who sends it stand in the dialog. */
const SENT: readonly (readonly [string, string | null, Answer])[] = [
  ["loading", null, "never"],
  ["refused", NAMES.html, { status: 409, errors: [`there is a token ${NAMES.html} already`] }],
  ["unreachable", AWAY, "away"],
];

function Revoking() {
  const [token] = TOKENS;
  return token === undefined ? null : <RevokeDialog token={token} isOwn={false} closed={nothing} />;
}

function Draining() {
  const shown = recorded("workers").workers[0];
  return shown === undefined ? null : <DrainDialog shown={shown} closed={nothing} />;
}

export const ACCESS: readonly Story[] = [
  drawn("Gate", "loading", "", () => <Gate>{null}</Gate>),
  ...SIGN_IN,
  form("empty", "Token", false, null),
  form("asking", "Asking", true, null),
  form("refused", "onerror", false, REVOKED),
  form("unreachable", "does not answer", false, AWAY),
  ...IDENTITIES.map(([name, one]): Story => {
    const isAdmin = one.scope === "admin";
    const story = page(name, "/cluster", isAdmin ? "Audit log" : one.scope, { identity: one });
    return { ...story, group: "Account", hides: isAdmin ? [] : ["TokensAudit log"] };
  }),
  drawn("No changes", "turned off", "web.cancel.enable", () => (
    <NoChanges may={mayOf("operate", { "web-cancel": false }, ME)} />
  )),
  drawn("No changes", "too small", "needs operate", () => (
    <NoChanges may={mayOf("operate", { "web-cancel": true }, identity("read"))} />
  )),
  drawn("No changes", "not known", "", () => <NoChanges may={mayOf("operate", undefined, ME)} />),
  drawn("Dialog: new token", "full", "Make it", () => <NewTokenDialog closed={nothing} />),
  ...SENT.flatMap(([state, shows, paths]) => [
    {
      ...drawn("Dialog: new token", state, shows ?? "Making it", () => <NewTokenDialog closed={nothing} />),
      ...{ typed: NAMES.html, press: ["Make it"], answers: { paths: {}, otherwise: paths } },
    },
    {
      ...drawn("Dialog: revoke a token", state, shows ?? "Revoking it", () => <Revoking />),
      ...{ press: ["Revoke it"], answers: { paths: {}, otherwise: paths } },
    },
  ]),
  drawn("Dialog: drain a worker", "full", "Drain it", () => <Draining />),
  ...SENT.map(([state, shows, paths]) => ({
    ...drawn("Dialog: drain a worker", state, shows ?? "Asking for it", () => <Draining />),
    ...{ press: ["Drain it"], answers: { paths: {}, otherwise: paths } },
  })),
  drawn("Dialog: new token", "made", "shown this once", () => (
    <MadeToken made={{ ...ME, id: ME.token, token: `unistream_${"0".repeat(12)}_${"f".repeat(64)}` }} />
  )),
  drawn("Dialog: new join token", "full", "So many may join", () => <NewJoinDialog closed={nothing} />),
  ...SENT.map(([state, shows, paths]) => ({
    ...drawn("Dialog: new join token", state, shows ?? "Making it", () => <NewJoinDialog closed={nothing} />),
    ...{ typed: NAMES.html, press: ["Make it"], answers: { paths: {}, otherwise: paths } },
  })),
  drawn("Dialog: new join token", "made", "shown this once", () => (
    <MadeJoinToken
      made={{ ...ME, id: ME.token, token: `unistream_${"0".repeat(12)}_${"f".repeat(64)}` }}
      at="https://node-1.example:8081"
    />
  )),
  ...(
    [
      ["empty", "There is no token with which", []],
      ["full", "nightly", TOKENS],
      [
        "huge",
        "59",
        Array.from({ length: 60 }, (_, index) => ({ ...JOINS, id: `${index}`, name: NAMES.long })),
      ],
    ] as const
  ).map(([name, shows, tokens]) =>
    drawn("Join tokens", name, shows, () => <JoinTokens tokens={tokens} nowMs={null} />),
  ),
  page("hosts, for an operator", "/hosts", "needs admin", { identity: identity("operate") }),
  page("hosts, where no other one can join", "/hosts", "--target standalone", {
    certificates: { ...CERTIFICATES, encrypts_workers: false },
  }),
  page("hosts, where none can ask for its certificate", "/hosts", "Hosts ask the REST API", {
    certificates: { ...CERTIFICATES, rest: null },
  }),
  page("hosts, searched in vain", "/hosts?q=nowhere", "No host has this in its name", {}),
  page("certificates, searched in vain", "/certificates?q=nobody", "No process has this in its name", {}),
  page("certificates of the REST API alone", "/certificates", "all on the host of the JobManager", {
    certificates: { ...CERTIFICATES, encrypts_workers: false, processes: [] },
  }),
  ...TOKENS.slice(0, 2).map((token) =>
    drawn("Dialog: revoke a token", token.name, "Revoke it", () => (
      <RevokeDialog token={token} isOwn={token.id === ME.token} closed={nothing} />
    )),
  ),
  page("a job, for a reader", `/jobs/${RECORDED}`, "needs operate", { identity: identity("read") }),
  page("audit log, for an operator", "/audit", "with the scope operate", { identity: identity("operate") }),
  page("audit log, searched in vain", "/audit?q=nobody", "None of the newest", {}),
  page("audit log, what was refused", "/audit?outcome=refused", "the scope is too small", {}),
  page(
    "audit log, by a URL that nobody has made",
    "/audit?q=%5B1%5D&outcome=%7B%7D&newest=NaN",
    "Outcome",
    {},
  ),
  page("tokens, for an operator", "/tokens", "with the scope operate", { identity: identity("operate") }),
  page("tokens, where nobody needs one", "/tokens", "security.rest.authentication: none", {
    identity: identity("admin", { token: "", name: "anybody", expiresMs: null }),
  }),
  page("tokens, where pages change nothing", "/tokens", "This page changes nothing", {}, false),
  page("tokens, searched for one that is not there", "/tokens?q=nobody", "has this in its name", {}),
];
