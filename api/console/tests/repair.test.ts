import { describe, expect, it } from 'vitest';
import { lost, Repair, type Sent } from '../src/meeting/repair';

const at = (packets: number, reported: number, wanted = true): Sent => ({ packets, reported, wanted });

describe('lost', () => { // FR2
  it.each([
    ['the server reports', at(10, 100), at(210, 4100), false],
    ['sent, and never reported', at(10, 0), at(210, 0), true],
    ['sent, and not reported any more', at(10, 100), at(210, 100), true],
    ['a still picture', at(10, 0), at(15, 0), false],
    ['no one watches', at(10, 0), at(210, 0, false), false],
  ])('%s', (_, first, now, want) => {
    expect(lost(first, now)).toBe(want);
  });
});

/** A media track: a clone has another id. */
function media(id: string): { id: string; readyState: string; clone: () => unknown } {
  return { id, readyState: 'live', clone: () => media(`${id}'`) };
}

/** A room with one participant whose tracks the server may have lost. It does not publish a track whose id it knows. */
function fake(sources: string[]) {
  const published: string[] = [];
  const tracks = sources.map((source) => ({
    source, isMuted: false, isUserProvided: false, mediaStreamTrack: media(source), sender: {}, getProcessor: () => undefined,
    async replaceTrack(next: ReturnType<typeof media>) { this.mediaStreamTrack = next; },
  }));
  const pubs = new Map<string, unknown>(tracks.map((track) => [track.source, { track, source: track.source, options: { name: track.source } }]));
  const server = new Set(sources), known = new Set(sources);
  let time = 0;
  const localParticipant = {
    trackPublications: pubs,
    unpublishTrack: async (track: { source: string }) => void pubs.delete(track.source),
    publishTrack: async (track: (typeof tracks)[0], options: unknown) => {
      published.push(track.source);
      if (known.has(track.mediaStreamTrack.id)) throw new Error('no response from server');
      known.add(track.mediaStreamTrack.id);
      pubs.set(track.source, { track, source: track.source, options });
      server.add(track.source);
    },
  };
  const read = async (track: unknown) => at(time * 50, server.has((track as { source: string }).source) ? time : 0);
  const again: string[] = [];
  const repair = new Repair({ localParticipant } as never, (source) => again.push(source), read as never);
  return {
    published, pubs, server, known, tracks, again, repair,
    checks: async (n: number) => { for (let i = 0; i < n; i++) { time++; await repair.check(); } },
  };
}

describe('Repair', () => { // FR2
  const all = ['camera', 'microphone', 'screen_share'];

  it('leaves what the server has', async () => {
    const f = fake(all);
    f.repair.interrupted();
    await f.checks(5);
    expect(f.published).toEqual([]);
  });

  it.each(all)('publishes %s again that the client lists and the server does not have', async (source) => {
    const f = fake(all);
    f.repair.interrupted();
    f.server.delete(source);
    await f.checks(5);
    expect(f.published).toEqual([source]);
    expect(f.again).toEqual([source]);
    expect(f.server.has(source)).toBe(true);
  });

  it.each(all)('publishes %s again that the client has dropped, with its options', async (source) => {
    const f = fake(all);
    f.repair.interrupted();
    f.pubs.delete(source);
    f.known.delete(source);
    await f.checks(3);
    expect(f.published).toEqual([source]);
    expect((f.pubs.get(source) as { options: unknown }).options).toEqual({ name: source });
  });

  it('leaves a track that its user has ended, is muted, or has begun since', async () => {
    const f = fake(all);
    f.repair.interrupted();
    f.server.clear();
    f.tracks[0].mediaStreamTrack.readyState = 'ended';
    f.tracks[1].isMuted = true;
    f.repair.forget(f.tracks[2] as never);
    await f.checks(5);
    expect(f.published).toEqual([]);
  });

  it('gives up a track that the server never has', async () => {
    const f = fake(['camera']);
    f.repair.interrupted();
    f.pubs.clear();
    const { publishTrack } = (f as unknown as { repair: { room: { localParticipant: { publishTrack: unknown } } } }).repair.room.localParticipant;
    expect(publishTrack).toBeDefined();
    (f.repair as unknown as { room: { localParticipant: { publishTrack: () => Promise<void> } } }).room.localParticipant.publishTrack = () => Promise.reject(new Error('refused'));
    await f.checks(10);
    expect(f.again).toHaveLength(3);
  });
});
