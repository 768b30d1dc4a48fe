import { describe, expect, it } from 'vitest';
import { Moves } from '../src/meeting/moves';

/** Runs the moves in steps of 50 ms. media: whether a packet arrives at a time. */
function run(m: Moves, from: number, to: number, media: (t: number) => boolean, sending = true) {
  for (let t = from; t <= to; t += 50) {
    if (media(t)) newest = t;
    m.tick(newest, sending, t);
  }
}
let newest = 0;
const always = () => true;
const never = () => false;

describe('moves', () => {
  it('measures the silence of a failed unit, from the last packet to the first', () => {
    newest = 0;
    const m = new Moves('a');
    run(m, 1000, 2000, always);
    run(m, 2050, 2300, never); // the unit is dead, and the page does not know it
    m.conference('awaiting-recovery', '', 2300);
    expect(m.open).toMatchObject({ cause: 'failed', from: 'a', to: '' });
    run(m, 2350, 2600, never);
    m.conference('open', 'b', 2600);
    m.interrupted(true, 2620);
    run(m, 2650, 2850, never);
    expect(m.open).not.toBeNull();
    run(m, 2900, 2900, always);
    m.connected(4600);
    expect(m.all).toEqual([{ at: 2300, cause: 'failed', from: 'a', to: 'b', took: 900 }]);
    expect(m.unit).toBe('b');
  });

  it('shows a planned move and its short silence', () => {
    newest = 0;
    const m = new Moves('a');
    run(m, 1000, 2000, always);
    m.interrupted(true, 2010); // before the event
    m.conference('open', 'b', 2100);
    run(m, 2050, 2200, never);
    run(m, 2250, 2250, always);
    expect(m.all).toEqual([{ at: 2010, cause: 'moved', from: 'a', to: 'b', took: 250 }]);
  });

  it('explains an interruption by an event that follows it', () => {
    const m = new Moves('a');
    m.interrupted(false, 1000);
    m.connected(1400);
    expect(m.all[0]).toMatchObject({ cause: 'connection', took: 400 });
    m.conference('awaiting-recovery', '', 2000);
    m.conference('open', 'b', 2100);
    expect(m.all).toHaveLength(1);
    expect(m.all[0]).toMatchObject({ cause: 'failed', to: 'b', took: 400 });
  });

  it('counts no interruption when only the signalling broke and media continued', () => {
    newest = 0;
    const m = new Moves('a');
    run(m, 1000, 2000, always);
    m.interrupted(false, 2010);
    run(m, 2050, 3000, always);
    m.connected(3000);
    expect(m.all[0]).toMatchObject({ cause: 'connection', took: 0 });
  });

  it('ends a move with the connection when no one sends', () => {
    newest = 0;
    const m = new Moves('a');
    run(m, 1000, 2000, never, false);
    m.conference('awaiting-recovery', '', 2010);
    m.conference('open', 'b', 2200);
    m.interrupted(true, 2210);
    run(m, 2250, 2900, never, false);
    m.connected(2910);
    expect(m.all[0]).toMatchObject({ cause: 'failed', to: 'b', took: 900 });
  });

  it('does not wait without end for media that does not return', () => {
    newest = 0;
    const m = new Moves('a');
    run(m, 1000, 2000, always);
    m.interrupted(true, 2010);
    m.connected(2500);
    run(m, 2550, 6000, never);
    expect(m.all[0].took).toBe(490);
  });

  it('ends a move to the same unit, which kept the conference', () => {
    newest = 0;
    const m = new Moves('a');
    run(m, 1000, 2000, always);
    m.conference('awaiting-recovery', '', 2010);
    run(m, 2050, 3000, always);
    m.conference('open', 'a', 3000);
    run(m, 3050, 7000, always);
    expect(m.all[0]).toMatchObject({ cause: 'failed', from: 'a', to: 'a', took: 0 });
  });
});
