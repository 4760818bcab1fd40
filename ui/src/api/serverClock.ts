/** A delay of the network is no other clock. */
const JITTER_MS = 250;

/** The clock of the cluster, by what it says and the clock of this browser, which may be wrong by years. */
export class ServerClock {
  #offsetMs: number | null = null;

  /** The cluster has just said what time it is. */
  heard(serverMs: number, localMs: number): void {
    const offsetMs = serverMs - localMs;
    if (this.#offsetMs === null || Math.abs(offsetMs - this.#offsetMs) > JITTER_MS) this.#offsetMs = offsetMs;
  }

  /** The time of the cluster; null until it has said one. */
  at(localMs: number): number | null {
    return this.#offsetMs === null ? null : localMs + this.#offsetMs;
  }

  /** When a time of the cluster was, by the clock of this browser. */
  localOf(serverMs: number): number {
    return serverMs - (this.#offsetMs ?? 0);
  }
}
