import { Link } from "@tanstack/react-router";

import type { SlotInfo, TaskManagerInfo, WorkerShown } from "../../api/schema";
import { bytes, count } from "../../format/numbers";
import { duration, since } from "../../format/times";
import type { Tone } from "../../model/states";
import { type WorkerState, layersOf, stateOf, tasksInWords } from "../../model/workers";
import { Badge } from "../../parts/Badge";
import { Copyable } from "../../parts/Copyable";
import { Ago } from "../../parts/Time";
import { MemoryLayers } from "./MemoryLayers";
import { WorkerLog } from "./WorkerLog";

const SLOTS_SHOWN = 64;

interface Props {
  readonly shown: WorkerShown;
  readonly nowMs: number;
  readonly open: boolean;
  readonly toggle: (open: boolean) => void;
  /** Null: this page does not. */
  readonly drain: (() => void) | null;
}

/** One worker: what one asks first; its memory, the tasks in its slots and its log when it is opened. */
export function WorkerRow({ shown, nowMs, open, toggle, drain }: Props) {
  const { worker, slots, has_log } = shown;
  const state = stateOf(shown, nowMs);
  return (
    <li className={open ? "card worker is-open" : "card worker"}>
      <div className="worker-head">
        <Badge tone={toneOf(state)}>{state}</Badge>
        <Copyable text={worker.id} />
        <span>
          <bdi>{worker.host ?? ""}</bdi>
        </span>
        <span className="quiet">
          {duration(since(worker.registered_ms ?? worker.started_ms, nowMs))} old
          {worker.pid !== null && ` · pid ${worker.pid}`}
        </span>
        <span className="quiet">
          heard <Ago ms={worker.heartbeat_ms} nowMs={nowMs} />
        </span>
        <Machine worker={worker} />
        {drain !== null && worker.address !== null && !worker.draining && (
          <button type="button" onClick={drain} aria-label={`Drain ${worker.id}`}>
            Drain
          </button>
        )}
        <button
          type="button"
          aria-expanded={open}
          onClick={() => {
            toggle(!open);
          }}
        >
          {open ? "Less" : "More"}
        </button>
      </div>
      <Slots worker={worker} slots={slots} />
      {open && (
        <div className="worker-more">
          <MemoryLayers worker={worker} />
          {has_log ? (
            <WorkerLog id={worker.id} />
          ) : (
            <p className="quiet">Its log is not on the machine of this master.</p>
          )}
        </div>
      )}
    </li>
  );
}

function Machine({ worker }: { worker: TaskManagerInfo }) {
  const [whole] = layersOf(worker);
  return (
    <span className="quiet">
      {count(worker.hardware?.cpu_cores)} cores, {bytes(worker.hardware?.memory_bytes)} on its host
      {whole?.used != null && ` · uses ${bytes(whole.used)} of ${bytes(whole.planned)}`}
    </span>
  );
}

function Slots({ worker, slots }: { worker: TaskManagerInfo; slots: readonly SlotInfo[] }) {
  const free = worker.address === null ? 0 : Math.max(0, worker.slots - slots.length);
  return (
    <ul className="slots" aria-label={`Slots: ${slots.length} of ${worker.slots} are taken`}>
      {slots.slice(0, SLOTS_SHOWN).map((slot) => (
        <li key={slot.allocation} className="slot tone-good">
          <Link to="/jobs/$job" params={{ job: slot.job }}>
            <bdi>{slot.job_name === "" ? slot.job.slice(0, 8) : slot.job_name}</bdi>
          </Link>
          <span className="slot-tasks" title={tasksInWords(slot.tasks)}>
            {slot.tasks.length === 0 ? "no task yet" : tasksInWords(slot.tasks)}
          </span>
        </li>
      ))}
      {slots.length > SLOTS_SHOWN && (
        <li className="slot tone-quiet">{slots.length - SLOTS_SHOWN} more taken</li>
      )}
      {free > 0 && (
        <li className="slot tone-quiet">{free === 1 ? "1 slot is free" : `${count(free)} slots are free`}</li>
      )}
    </ul>
  );
}

function toneOf(state: WorkerState): Tone {
  switch (state) {
    case "silent":
      return "bad";
    case "blocked":
      return "warn";
    case "draining":
    case "starting":
      return "busy";
    case "busy":
      return "good";
    case "idle":
      return "quiet";
  }
}
