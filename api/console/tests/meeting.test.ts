import { describe, expect, it } from 'vitest';
import { Choice } from '../src/meeting/choice';
import { isLink } from '../src/meeting/link';
import { same, shown, type Person, type Present } from '../src/meeting/presence';
import { meetingWords } from '../src/meeting/words';

const present = (identity: string, more: Partial<Present> = {}): Present => ({
  identity, name: identity, own: false, host: false, guest: false, speaking: false, audible: true, camera: null, audio: null, ...more,
});
const person = (identity: string, more: Partial<Person> = {}): Person => ({ ...present(identity), audible: true, away: false, ...more });

describe('participants', () => {
  it('stay while the conference moves, without their media', () => {
    const track = {} as Person['camera'];
    const before = [person('me', { own: true }), person('ann', { camera: track, audio: track, speaking: true })];
    const now = shown([present('me', { own: true })], before, true);
    expect(now[1]).toEqual(person('ann', { away: true }));
    expect(shown([present('me', { own: true })], before, false)).toHaveLength(1);
  });

  it('do not appear as muted before they have published again', () => {
    const before = [person('ann'), person('ben', { audible: false })];
    const now = [present('ann', { audible: null }), present('ben', { audible: null })];
    expect(shown(now, before, true).map((p) => p.audible)).toEqual([true, false]);
    expect(shown(now, before, false).map((p) => p.audible)).toEqual([false, false]);
    expect(shown([present('ann', { audible: false })], before, true)[0].audible).toBe(false);
  });

  it('differ when a picture has returned', () => {
    const a = [person('ann')];
    expect(same(a, [person('ann')])).toBe(true);
    expect(same(a, [person('ann', { camera: {} as Person['camera'] })])).toBe(false);
    expect(same(a, [])).toBe(false);
  });
});

describe('the choice of a microphone', () => {
  it('is kept when the page is left or the connection is interrupted', () => {
    const c = new Choice(true);
    c.see(false, 0);
    expect(c.see(null, 100)).toBe(false);
    expect(c.on).toBe(true);
    expect(c.shown(null, false)).toBe(true);
    expect(c.shown(null, true)).toBe(false);
    expect(new Choice(false).shown(null, false)).toBe(false);
  });

  it('shows a press before it has an effect', () => {
    const c = new Choice(false);
    c.see(true, 0);
    c.press(true, 100);
    expect(c.see(true, 110)).toBe(false);
    expect(c.shown(true, true)).toBe(true);
    c.settled();
    c.see(false, 200);
    expect([c.on, c.overruled]).toEqual([true, false]);
  });

  function unmuted(at: number, c = new Choice(false)) {
    c.press(true, at);
    c.settled();
    c.see(false, at);
    return c;
  }

  it('is restored once when the next unit mutes what the user had just unmuted', () => {
    const c = unmuted(10_000);
    c.interrupted(10_500);
    c.interrupted(10_600);
    expect(c.see(true, 10_700)).toBe(true);
    expect([c.on, c.overruled]).toEqual([true, false]);
    c.returned(11_000);
    c.see(false, 11_100);
    expect(c.see(true, 12_000)).toBe(false);
    expect([c.on, c.overruled]).toEqual([false, true]);
  });

  it('yields to every other mute, with a notice', () => {
    for (const [pressed, back, muted] of [[1000, 11_000, 11_500], [10_000, 11_000, 17_000], [11_200, 11_000, 11_500]]) {
      const c = pressed < back ? unmuted(pressed) : new Choice(false);
      c.interrupted(10_500);
      c.returned(back);
      if (pressed > back) unmuted(pressed, c);
      expect(c.see(true, muted)).toBe(false);
      expect([c.on, c.overruled]).toEqual([false, true]);
      c.press(true, muted + 100);
      expect(c.overruled).toBe(false);
    }
    const c = new Choice(true);
    c.see(true, 100);
    expect(c.overruled).toBe(true);
  });

  it('has no notice of a mute by the user', () => {
    const c = unmuted(0);
    c.press(false, 100);
    c.settled();
    c.see(true, 150);
    expect([c.on, c.overruled]).toEqual([false, false]);
  });
});

describe('an address of a link', () => {
  it('is refused when it is incomplete', () => {
    expect(isLink('ABCDEFGHIJKLMNOPQRSTUVWX27')).toBe(true);
    for (const bad of ['', 'none', 'ABCDEFGHIJKLMNOPQRSTUVWX2', 'abcdefghijklmnopqrstuvwx27']) expect(isLink(bad)).toBe(false);
  });
});

it('does not state that a removed guest can never return', () => {
  expect(meetingWords.en.removedText).not.toMatch(/cannot/);
  expect(meetingWords.zh.removedText).not.toContain('不能');
});
