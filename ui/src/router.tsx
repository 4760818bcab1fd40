import {
  Outlet,
  type RouterHistory,
  type SearchSchemaInput,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
} from "@tanstack/react-router";

import { OverviewPage } from "./pages/overview/OverviewPage";
import { viewOf } from "./pages/overview/view";
import { CheckpointsTab } from "./pages/job/CheckpointsTab";
import { CommitsTab } from "./pages/job/CommitsTab";
import { ConfigurationTab } from "./pages/job/ConfigurationTab";
import { DeadLettersTab } from "./pages/job/DeadLettersTab";
import { ExceptionsTab } from "./pages/job/ExceptionsTab";
import { GraphTab } from "./pages/job/GraphTab";
import { JobPage } from "./pages/job/JobPage";
import { LEVELS, type Level } from "./model/log";
import { type AuditView, auditViewOf } from "./model/audit";
import { namedViewOf } from "./model/certificates";
import { type HistoryView, historyViewOf } from "./model/history";
import { clusterViewOf } from "./pages/cluster/view";
import { simulationViewOf } from "./pages/simulation/view";
import { workersViewOf } from "./pages/workers/view";
import { StateTab } from "./pages/job/state/StateTab";
import { stateViewOf } from "./model/savepointQuery";
import type { StoryView } from "./model/story";
import { type TokensView, tokensViewOf } from "./model/tokens";
import { Shell } from "./shell/Shell";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: OverviewPage,
  validateSearch: viewOf,
});

const workers = createRoute({
  getParentRoute: () => root,
  path: "/workers",
  component: lazyRouteComponent(() => import("./pages/workers/WorkersPage"), "WorkersPage"),
  validateSearch: workersViewOf,
});

const cluster = createRoute({
  getParentRoute: () => root,
  path: "/cluster",
  component: lazyRouteComponent(() => import("./pages/cluster/ClusterPage"), "ClusterPage"),
  validateSearch: clusterViewOf,
});

const history = createRoute({
  getParentRoute: () => root,
  path: "/history",
  component: lazyRouteComponent(() => import("./pages/history/HistoryPage"), "HistoryPage"),
  validateSearch: (search: { readonly [name in keyof HistoryView]?: unknown } & SearchSchemaInput) =>
    historyViewOf(search),
});

const procedures = createRoute({
  getParentRoute: () => root,
  path: "/procedures",
  component: lazyRouteComponent(() => import("./pages/procedures/ProceduresPage"), "ProceduresPage"),
});

const simulation = createRoute({
  getParentRoute: () => root,
  path: "/simulation",
  component: lazyRouteComponent(() => import("./pages/simulation/SimulationPage"), "SimulationPage"),
  validateSearch: (search: { readonly [name in keyof StoryView]?: unknown } & SearchSchemaInput) =>
    simulationViewOf(search),
});

const tokens = createRoute({
  getParentRoute: () => root,
  path: "/tokens",
  component: lazyRouteComponent(() => import("./pages/tokens/TokensPage"), "TokensPage"),
  validateSearch: (search: { readonly [name in keyof TokensView]?: unknown } & SearchSchemaInput) =>
    tokensViewOf(search),
});

const audit = createRoute({
  getParentRoute: () => root,
  path: "/audit",
  component: lazyRouteComponent(() => import("./pages/audit/AuditPage"), "AuditPage"),
  validateSearch: (search: { readonly [name in keyof AuditView]?: unknown } & SearchSchemaInput) =>
    auditViewOf(search),
});

const hosts = createRoute({
  getParentRoute: () => root,
  path: "/hosts",
  component: lazyRouteComponent(() => import("./pages/hosts/HostsPage"), "HostsPage"),
  validateSearch: (search: { readonly q?: unknown } & SearchSchemaInput) => namedViewOf(search),
});

const certificates = createRoute({
  getParentRoute: () => root,
  path: "/certificates",
  component: lazyRouteComponent(() => import("./pages/certificates/CertificatesPage"), "CertificatesPage"),
  validateSearch: (search: { readonly q?: unknown } & SearchSchemaInput) => namedViewOf(search),
});

const explain = createRoute({
  getParentRoute: () => root,
  path: "/explain",
  component: lazyRouteComponent(() => import("./pages/explain/ExplainPage"), "ExplainPage"),
});

const submit = createRoute({
  getParentRoute: () => root,
  path: "/submit",
  component: lazyRouteComponent(() => import("./pages/submit/SubmitPage"), "SubmitPage"),
});

const jobs = createRoute({ getParentRoute: () => root, path: "/jobs", component: Outlet });
const job = createRoute({ getParentRoute: () => jobs, path: "/$job", component: JobPage });
const graph = createRoute({
  getParentRoute: () => job,
  path: "/",
  component: GraphTab,
  validateSearch: (search: Record<string, unknown>): { vertex?: string } =>
    typeof search["vertex"] === "string" ? { vertex: search["vertex"] } : {},
});
const exceptions = createRoute({ getParentRoute: () => job, path: "/exceptions", component: ExceptionsTab });
const configuration = createRoute({
  getParentRoute: () => job,
  path: "/configuration",
  component: ConfigurationTab,
});
const checkpoints = createRoute({
  getParentRoute: () => job,
  path: "/checkpoints",
  component: CheckpointsTab,
  validateSearch: (search: Record<string, unknown>): { id?: number; other?: number } => ({
    ...(typeof search["id"] === "number" && { id: search["id"] }),
    ...(typeof search["other"] === "number" && { other: search["other"] }),
  }),
});

const commits = createRoute({ getParentRoute: () => job, path: "/commits", component: CommitsTab });
const deadLetters = createRoute({
  getParentRoute: () => job,
  path: "/dead-letters",
  component: DeadLettersTab,
});
const state = createRoute({
  getParentRoute: () => job,
  path: "/state",
  component: StateTab,
  validateSearch: stateViewOf,
});
const timeline = createRoute({
  getParentRoute: () => job,
  path: "/timeline",
  component: lazyRouteComponent(() => import("./pages/job/TimelineTab"), "TimelineTab"),
  validateSearch: (search: Record<string, unknown>): { from?: number; to?: number } => ({
    ...(typeof search["from"] === "number" ? { from: search["from"] } : {}),
    ...(typeof search["to"] === "number" ? { to: search["to"] } : {}),
  }),
});

const log = createRoute({
  getParentRoute: () => job,
  path: "/log",
  component: lazyRouteComponent(() => import("./pages/job/LogTab"), "LogTab"),
  validateSearch: (search: Record<string, unknown>): { q?: string; level?: Level } => {
    const level = LEVELS.find((one) => one === search["level"]);
    return {
      ...(typeof search["q"] === "string" ? { q: search["q"] } : {}),
      ...(level === undefined ? {} : { level }),
    };
  },
});
const plan = createRoute({
  getParentRoute: () => job,
  path: "/plan",
  component: lazyRouteComponent(() => import("./pages/job/PlanTab"), "PlanTab"),
});

const batch = createRoute({
  getParentRoute: () => job,
  path: "/batch",
  component: lazyRouteComponent(() => import("./pages/job/BatchTab"), "BatchTab"),
});

function NotFound() {
  return <p className="empty">There is no such page. The overview lists all jobs.</p>;
}

const routeTree = root.addChildren([
  overview,
  workers,
  cluster,
  history,
  procedures,
  simulation,
  explain,
  submit,
  tokens,
  audit,
  hosts,
  certificates,
  jobs.addChildren([
    job.addChildren([
      graph,
      exceptions,
      configuration,
      checkpoints,
      timeline,
      log,
      plan,
      state,
      commits,
      deadLetters,
      batch,
    ]),
  ]),
]);

const BASE = "/ui";

/** The pages along a history. It reads the address, so nothing may stand there any more that is no page's. */
export function routerAt(history: RouterHistory) {
  return createRouter({ routeTree, basepath: BASE, history });
}

declare module "@tanstack/react-router" {
  interface Register {
    router: ReturnType<typeof routerAt>;
  }
}
