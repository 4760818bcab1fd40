import { useSyncExternalStore } from "react";

import { type Operation, kept, parsed } from "../model/operations";

const KEY = "unistream-operations";

let current: readonly Operation[] = kept(parsed(localStorage.getItem(KEY)), Date.now());
const listeners = new Set<() => void>();

/** What this browser has asked for, the newest first: it outlives the page, and other tabs see it, too. */
export function useOperations(): readonly Operation[] {
  return useSyncExternalStore(subscribe, operations);
}

export function operations(): readonly Operation[] {
  return current;
}

export function operation(id: string): Operation | undefined {
  return current.find((one) => one.id === id);
}

/** Adds it, or puts it in the place of the one with its id. */
export function store(changed: Operation) {
  if (operation(changed.id) === changed) return;
  set([...current.filter(({ id }) => id !== changed.id), changed]);
  localStorage.setItem(KEY, JSON.stringify(current));
}

/** Nobody needs to see it any more. */
export function dismiss(id: string) {
  set(current.filter((one) => one.id !== id));
  localStorage.setItem(KEY, JSON.stringify(current));
}

/** 32 hex digits, as trigger ids have. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function set(changed: readonly Operation[]) {
  current = kept(changed, Date.now());
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void) {
  if (listeners.size === 0) addEventListener("storage", read);
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) removeEventListener("storage", read);
  };
}

/** Another tab has changed them. */
function read(event: StorageEvent) {
  if (event.key === KEY || event.key === null) set(parsed(localStorage.getItem(KEY)));
}
