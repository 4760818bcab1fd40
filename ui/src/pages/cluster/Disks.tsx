import type { DiskShown } from "../../api/schema";
import { bytes, percent } from "../../format/numbers";
import { nameOfDisk, roomOf, toneOfRoom } from "../../model/disks";
import { Badge } from "../../parts/Badge";

/** The room on the disks where the cluster keeps something. */
export function Disks({ disks }: { disks: readonly DiskShown[] }) {
  return (
    <section className="card" aria-labelledby="room">
      <h2 id="room">Room</h2>
      {disks.length === 0 && <p className="quiet">This master does not say where it keeps anything.</p>}
      <dl className="pairs">
        {disks.map((disk) => (
          <div key={disk.what}>
            <dt>{nameOfDisk(disk.what)}</dt>
            <dd>
              <Free disk={disk} />
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Free({ disk }: { disk: DiskShown }) {
  const room = roomOf(disk);
  if (room.is === "unknown") {
    return (
      <>
        <Badge tone={toneOfRoom(room)}>unknown</Badge>{" "}
        <span className="quiet">
          An object store has no such figure; a disk that does not answer, none now.
        </span>
      </>
    );
  }
  return (
    <>
      <Badge tone={toneOfRoom(room)}>{percent(room.part)} free</Badge> {bytes(disk.free_bytes)} of{" "}
      {bytes(disk.total_bytes)}
    </>
  );
}
