// Repairs what livekit-client 2.23.0 may lose in a move between media servers. It publishes everything again when it has reconnected, and
// sometimes lists a publication afterwards that the server does not have, or has dropped one; and a message that is sent while it has no
// connection makes all later ones fail. The repair depends on nothing of berth: other clients may use it as it is.
import type { LocalTrack, LocalTrackPublication, Room } from 'livekit-client';

/** How long after the reconnection the server may take to acknowledge a track with its reports, which it sends every second. */
export const acknowledgedWithin = 4000;
/** A track with fewer packets may not have been reported on yet. */
const enough = 20;
/** How often a track is published again after one reconnection. */
const attempts = 3;

/** What a sender's statistics say of a track. */
export interface Sent {
  packets: number;
  /** The time of the server's last report on it; 0 without one. */
  reported: number;
  /** The server wants it: with dynacast, a picture that no one watches is not sent. */
  wanted: boolean;
}

/** Reports whether the server has a track, as far as is known since a time. */
export function lost(first: Sent, now: Sent): boolean {
  return now.wanted && now.reported <= first.reported && now.packets - first.packets >= enough;
}

interface Watched {
  track: LocalTrack;
  options: LocalTrackPublication['options'];
  source: string;
  first: Sent | null;
  tries: number;
}

export class Repair {
  private expected = new Map<LocalTrack, Watched>();
  private timer: ReturnType<typeof setInterval> | undefined;

  /** again is called with the source of each track that is published again. */
  constructor(private room: Room, private again: (source: string) => void = () => {}, private read: (track: LocalTrack) => Promise<Sent | null> = sent) {}

  /** The connection is interrupted: what is published now has to be there afterwards. */
  interrupted() {
    this.stop();
    for (const pub of this.publications()) {
      if (pub.track && !this.expected.has(pub.track)) this.expected.set(pub.track, { track: pub.track, options: pub.options, source: pub.source, first: null, tries: 0 });
    }
  }

  /** The connection is restored. */
  returned() {
    this.stop();
    forgetFailure(this.room);
    for (const w of this.expected.values()) Object.assign(w, { first: null, tries: 0 });
    let checking = false;
    const check = async () => {
      if (checking) return;
      checking = true;
      await this.check().finally(() => (checking = false));
      if (this.expected.size === 0) this.stop();
    };
    this.timer = setInterval(() => void check(), acknowledgedWithin);
  }

  /** A track that its user has ended is not expected any more. */
  forget(track: LocalTrack | undefined) {
    if (track) this.expected.delete(track);
  }

  stop() {
    clearInterval(this.timer);
  }

  private publications(): LocalTrackPublication[] {
    return [...this.room.localParticipant.trackPublications.values()] as LocalTrackPublication[];
  }

  /** Publishes again what is missing, and forgets what is there. */
  async check() {
    for (const w of this.expected.values()) {
      if (w.track.mediaStreamTrack.readyState === 'ended' || w.tries >= attempts) {
        this.expected.delete(w.track);
        continue;
      }
      const pub = this.publications().find((p) => p.track === w.track);
      if (pub) {
        if (w.track.isMuted) continue; // nothing is sent
        const now = await this.read(w.track);
        if (!now) continue;
        if (!w.first) {
          w.first = now;
          continue;
        }
        if (now.reported > w.first.reported) this.expected.delete(w.track);
        if (!lost(w.first, now)) continue;
      }
      w.tries++;
      w.first = null;
      this.again(w.source);
      try {
        if (pub) {
          await renew(w.track);
          await this.room.localParticipant.unpublishTrack(w.track, false);
        }
        await this.room.localParticipant.publishTrack(w.track, w.options);
      } catch {
        // the next check tries again
      }
    }
  }
}

/** Gives a track a new id. The server lets a track wait whose id it knows from a publication that it has lost, or treated as another one. */
async function renew(track: LocalTrack) {
  if (track.sender && !track.getProcessor()) await track.replaceTrack(track.mediaStreamTrack.clone(), track.isUserProvided);
}

/** Makes the client look again whether it can send messages: it keeps the first answer, also when that was an error of the interruption. */
function forgetFailure(room: Room) {
  const engine = room.engine as unknown as { publisherConnectionPromise?: Promise<void> } | undefined;
  if (engine) engine.publisherConnectionPromise = undefined;
}

/** Reads what a track's sender has sent. */
async function sent(track: LocalTrack): Promise<Sent | null> {
  const { sender } = track;
  if (!sender) return null;
  const out: Sent = { packets: 0, reported: 0, wanted: sender.getParameters().encodings?.some((e) => e.active) ?? true };
  for (const s of (await sender.getStats()).values() as Iterable<{ type: string; packetsSent?: number; timestamp: number }>) {
    if (s.type === 'outbound-rtp') out.packets += s.packetsSent ?? 0;
    if (s.type === 'remote-inbound-rtp') out.reported = Math.max(out.reported, s.timestamp);
  }
  return out;
}
