// What a participant notices of moves between media units: why the connection was interrupted, and for how long. It is fed with the
// conference's events, the connection's, and the time of the newest media packet.

/** Why there was an interruption: the unit failed, the conference was moved, or only the connection broke. */
export type Cause = 'failed' | 'moved' | 'connection';

export interface Move {
  at: number;
  cause: Cause;
  from: string;
  /** Empty while no unit has the conference. Guests get the units' epochs instead of their ids. */
  to: string;
  /** Milliseconds without media, or without a connection if no one was sending; -1 while it lasts. */
  took: number;
}

/** How long an event may follow the interruption that it explains. */
const related = 5000;
/** How long media is waited for after the connection was restored. */
const mediaWithin = 3000;
/** Pauses between packets that are no interruption. */
const unnoticed = 300;

export class Moves {
  all: Move[] = [];
  private media = 0;
  private gap = 0;
  private sending = false;
  private restarting = false;
  private connectedAt = 0;
  private placedAt = 0;

  constructor(public unit: string) {}

  get open(): Move | null {
    const last = this.all.at(-1);
    return last && last.took < 0 ? last : null;
  }

  /** An event of the conference. */
  conference(status: string, unit: string, now: number) {
    if (!unit) {
      if (status === 'awaiting-recovery') this.begin('failed', now);
      return;
    }
    if (unit === this.unit && !this.open) return;
    const move = unit === this.unit ? this.open! : this.begin('moved', now);
    move.to = unit;
    this.unit = unit;
    this.placedAt = now;
  }

  /** The connection is interrupted; restarting: it is made again, with new media. */
  interrupted(restarting: boolean, now: number) {
    this.begin('connection', now);
    this.restarting ||= restarting;
    this.connectedAt = 0;
  }

  connected(now: number) {
    if (!this.open) return;
    if (!this.restarting) this.close(this.sending ? this.interruption : now - this.open.at);
    else if (!this.sending) this.close(now - this.open.at);
    else this.connectedAt = now;
  }

  /** Called often. newest: the time of the newest packet by any clock, 0 without one; sending: whether another participant sends. */
  tick(newest: number, sending: boolean, now: number) {
    const open = this.open;
    const fresh = newest > this.media;
    if (open && fresh && this.media) this.gap = Math.max(this.gap, newest - this.media);
    if (fresh) this.media = newest;
    if (!open) {
      this.sending = sending && this.media > 0;
      if (!sending) this.media = 0;
      return;
    }
    if (this.restarting && fresh) this.close(this.sending ? this.gap : now - open.at);
    else if (this.connectedAt && now - this.connectedAt > mediaWithin) this.close(this.connectedAt - open.at);
    else if (!this.restarting && open.cause !== 'connection' && open.to && now - this.placedAt > mediaWithin) {
      if (open.cause === 'moved') this.all.pop(); // the same room under another epoch
      else this.close(this.interruption);
    }
  }

  private get interruption() {
    return this.gap > unnoticed ? this.gap : 0;
  }

  private begin(cause: Cause, now: number): Move {
    const last = this.all.at(-1);
    const explains = last && cause !== 'connection' && !last.to && now - last.at - last.took < related;
    if (last && (last.took < 0 || explains)) {
      if (last.cause === 'connection') last.cause = cause;
      return last;
    }
    const move: Move = { at: now, cause, from: this.unit, to: '', took: -1 };
    this.all.push(move);
    this.gap = 0;
    return move;
  }

  private close(took: number) {
    this.open!.took = Math.round(took);
    this.restarting = false;
    this.connectedAt = 0;
    this.gap = 0;
  }
}
