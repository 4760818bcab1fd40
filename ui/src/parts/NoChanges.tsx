import type { May } from "../model/access";

/** In place of what would change something: why nothing is offered here. */
export function NoChanges({ may }: { may: May }) {
  switch (may.is) {
    case "yes":
    case "not known":
      return null;
    case "turned off":
      return (
        <p className="quiet">
          This page changes nothing in this cluster (<code>web.cancel.enable</code>); the command line does.
        </p>
      );
    case "too small":
      return (
        <p className="quiet">
          You are signed in as <bdi>{may.name}</bdi>, with the scope <code>{may.scope}</code>: what changes
          something here needs <code>{may.needed}</code>.
        </p>
      );
  }
}
