/** What a pipeline becomes, as `unistream explain --json` says it. */
export interface Explained {
  readonly name: string;
  readonly type: string;
  readonly subtasks: number;
  readonly regions: number;
  readonly vertices: readonly ExplainedVertex[];
}

/** Operators that share a task. */
export interface ExplainedVertex {
  readonly id: string;
  readonly name: string;
  readonly parallelism: number;
  readonly maxParallelism: number;
  readonly slotSharingGroup: string;
  readonly operators: readonly { readonly name: string; readonly uid: string }[];
  readonly inputs: readonly ExplainedInput[];
}

/** What a vertex reads. `obstacle`: why the two share no task. */
export interface ExplainedInput {
  readonly id: string;
  readonly ship: string;
  readonly exchange: string;
  readonly obstacle: string;
}

const HOW = "The file is what `unistream explain MODULE:FUNCTION --json` prints.";

/** The plan in a file, or one sentence why it is none. */
export function explainedOf(text: string): Explained | string {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return `This is no JSON. ${HOW}`;
  }
  const graphs = ["streamGraph", "jobGraph", "executionGraph"].map((name) => record(found)[name]);
  if (!graphs.every(isRecord)) return `This is no plan of a pipeline. ${HOW}`;
  const [stream, job, execution] = graphs.map(record);
  const operators = list(stream?.["nodes"]);
  const executed = new Map(list(execution?.["vertices"]).map((vertex) => [vertex["id"], vertex]));
  return {
    name: words(record(found)["name"]),
    type: words(record(found)["type"]),
    subtasks: number(execution?.["subtasks"]),
    regions: number(record(execution?.["regions"])["count"]),
    vertices: list(job?.["nodes"]).map((node) => {
      const own = operators.filter(({ vertex }) => vertex === node["id"]);
      return {
        id: words(node["id"]),
        name:
          words(executed.get(node["id"])?.["name"]) || words(node["description"]).replaceAll("<br/>", " -> "),
        parallelism: number(node["parallelism"]),
        maxParallelism:
          number(executed.get(node["id"])?.["maxParallelism"]) || number(own[0]?.["maxParallelism"]),
        slotSharingGroup: words(executed.get(node["id"])?.["slotSharingGroup"]),
        operators: own.map((operator) => ({
          name: words(operator["contents"]),
          uid: words(operator["uid"]),
        })),
        inputs: list(node["inputs"]).map((input) => ({
          id: words(input["id"]),
          ship: words(input["ship_strategy"]).toLowerCase(),
          exchange: words(input["exchange"]).replaceAll("_", " "),
          obstacle: obstacleBetween(words(input["id"]), own, operators),
        })),
      };
    }),
  };
}

/** Of an operator of the one vertex that reads one of the other. */
function obstacleBetween(source: string, own: readonly Fields[], operators: readonly Fields[]): string {
  const vertices = new Map(operators.map((operator) => [operator["id"], operator["vertex"]]));
  const edges = own.flatMap((operator) => list(operator["predecessors"]));
  return words(edges.find((edge) => vertices.get(edge["id"]) === source)?.["obstacle"]);
}

type Fields = Readonly<Record<string, unknown>>;

function isRecord(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function record(value: unknown): Fields {
  return isRecord(value) ? value : {};
}

function list(value: unknown): readonly Fields[] {
  return Array.isArray(value) ? value.filter(isRecord) : [];
}

function words(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function number(value: unknown): number {
  return typeof value === "number" ? value : 0;
}
