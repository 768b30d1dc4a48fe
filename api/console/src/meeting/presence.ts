// Who is shown, derived from the participants of the room.
import type { Track } from 'livekit-client';

export interface Person {
  identity: string;
  name: string;
  own: boolean;
  host: boolean;
  guest: boolean;
  speaking: boolean;
  /** Whether the microphone is on. */
  audible: boolean;
  camera: Track | null;
  audio: Track | null;
  /** Not connected during a move. */
  away: boolean;
}

/** A participant in the room. audible is null without a microphone track. */
export type Present = Omit<Person, 'audible' | 'away'> & { audible: boolean | null };

/** Returns who is shown. During a move, participants who have not returned are shown as before, and so are microphones. */
export function shown(present: Present[], before: Person[], moving: boolean): Person[] {
  const former = new Map(moving ? before.map((p) => [p.identity, p]) : []);
  const here = present.map((p) => ({ ...p, audible: p.audible ?? former.get(p.identity)?.audible ?? false, away: false }));
  const missing = [...former.values()].filter((p) => !p.own && !here.some((n) => n.identity === p.identity));
  return [...here, ...missing.map((p) => ({ ...p, camera: null, audio: null, speaking: false, away: true }))].sort(order);
}

const order = (a: Person, b: Person) => Number(b.own) - Number(a.own) || (a.identity < b.identity ? -1 : 1);

/** Reports whether both lists show the same. */
export function same(a: Person[], b: Person[]): boolean {
  return a.length === b.length && a.every((p, i) => (Object.keys(p) as (keyof Person)[]).every((k) => p[k] === b[i][k]));
}
