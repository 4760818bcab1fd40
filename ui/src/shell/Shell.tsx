import { useQuery } from "@tanstack/react-query";
import { Link, Outlet } from "@tanstack/react-router";
import { useRef } from "react";

import { identityQuery, useOverview } from "../api/queries";
import { allows } from "../model/access";
import { Account } from "./Account";
import { Help } from "./Help";
import { LiveMark, LiveNotice } from "./LiveState";
import { Operations } from "./Operations";
import { Search } from "./Search";
import { ThemeChoice } from "./ThemeChoice";
import { useKeys } from "./keys";
import "./shell.css";

/** Of the cluster's id, which has 32 characters. */
const SHOWN = 8;

/** What stands around every page: where one is, the search, and what the cluster has to say. */
export function Shell() {
  const search = useRef<HTMLInputElement>(null);
  const help = useRef<HTMLDialogElement>(null);
  useKeys({
    "/": () => search.current?.focus(),
    "?": () => help.current?.showModal(),
  });
  const { data } = useOverview();
  const { data: identity } = useQuery(identityQuery);
  const isSignedIn = identity !== undefined && identity.token !== ""; // otherwise nobody needs to be
  return (
    <>
      <a className="skip" href="#content">
        To the content
      </a>
      <header className="bar">
        <Link to="/" className="brand">
          unistream
        </Link>
        <nav aria-label="Pages">
          <Link to="/" activeOptions={{ exact: true }}>
            Overview
          </Link>
          <Link to="/workers">Workers</Link>
          <Link to="/cluster">Cluster</Link>
          <Link to="/history">History</Link>
          <Link to="/procedures">Procedures</Link>
          <Link to="/explain">Plan</Link>
          <Link to="/simulation">Simulation</Link>
          {identity !== undefined && allows(identity.scope, "submit") && <Link to="/submit">Submit</Link>}
          {isSignedIn && allows(identity.scope, "admin") && <Link to="/tokens">Tokens</Link>}
        </nav>
        <Search box={search} />
        <span className="quiet bar-end" title={data?.cluster}>
          {data !== undefined &&
            `${data.cluster === "" ? "cluster" : data.cluster.slice(0, SHOWN)} · ${data.version}`}
        </span>
        <LiveMark />
        {isSignedIn && <Account identity={identity} />}
        <ThemeChoice />
        <button type="button" onClick={() => help.current?.showModal()} aria-label="Keys and help">
          ?
        </button>
      </header>
      <main id="content" tabIndex={-1}>
        <Outlet />
      </main>
      <LiveNotice />
      <Help dialog={help} />
      <Operations />
    </>
  );
}
