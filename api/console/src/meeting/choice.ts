// What the user chose for the microphone or the camera. It differs from what is published: while the connection is interrupted, and when
// the page is left, nothing is.

/** How long before an interruption the former unit may not have reported that the user unmuted. */
const reportedWithin = 3000;
/** How long after the return the next unit mutes what the former one had reported as muted. */
const restoredWithin = 5000;

export class Choice {
  /** It was muted, not by the user. */
  overruled = false;
  private pending = 0;
  private unmutedAt = -Infinity;
  private interruptedAt = Infinity;
  private returnedAt = Infinity;

  constructor(public on: boolean) {}

  /** The user presses the button. settled is called when the change was made. */
  press(on: boolean, now: number) {
    this.on = on;
    this.overruled = false;
    this.unmutedAt = on ? now : -Infinity;
    this.pending++;
  }

  settled() {
    this.pending--;
  }

  interrupted(now: number) {
    if (this.returnedAt !== Infinity || this.interruptedAt === Infinity) this.interruptedAt = now;
    this.returnedAt = Infinity;
  }

  returned(now: number) {
    this.returnedAt = now;
  }

  /**
   * The state of the published track; null without one. Returns whether to unmute it: the next unit has muted what the user had just
   * unmuted. Any other mute is accepted.
   */
  see(muted: boolean | null, now: number): boolean {
    if (muted === null || this.pending) return false;
    if (muted && this.on) {
      const stale = this.unmutedAt > this.interruptedAt - reportedWithin && this.unmutedAt < this.returnedAt && (this.returnedAt === Infinity || now - this.returnedAt < restoredWithin);
      this.unmutedAt = -Infinity; // once
      if (stale) return true;
      this.overruled = true;
    }
    if (!muted) this.overruled = false;
    this.on = !muted;
    return false;
  }

  /** Whether the button shows that it is on. steady: the connection is not interrupted. */
  shown(muted: boolean | null, steady: boolean): boolean {
    return this.on && (muted !== null || this.pending > 0 || !steady);
  }
}
