import { expect, test } from 'vitest';
import { Decoder, follow, Refused, type Frame } from '../src/lib/sse';
import { adopt, answerOf, apply, emptyRun } from '../src/lib/task';
import { startMock, type Mock } from './mock.mjs';

test('the decoder returns the same frames for any split of the bytes', () => {
  const text = '\ufeff: hello\nretry: 100\n\nid: 1-1\nevent: token\ndata: {"a":\ndata: 1}\n\nid:1-2\r\nevent: token\r\ndata: x\r\n\r\nid: 1-3\rdata: y\r\revent: queued\ndata: z\n\nid: 1-4\n: keep-alive\nretry: no\nunknown: x\nevent:token\ndata\ndata:  ü🌊\ndata:\n\nevent: ping\nid: 1-5\n\ndata: cut off';
  const wire = new TextEncoder().encode(text);
  const want: Frame[] = [
    { id: '1-1', event: 'token', data: '{"a":\n1}' },
    { id: '1-2', event: 'token', data: 'x' },
    { id: '1-3', event: 'message', data: 'y' },
    { id: '', event: 'queued', data: 'z' },
    { id: '1-4', event: 'token', data: '\n ü🌊\n' },
  ];
  for (let size = 1; size <= wire.length; size++) {
    const p = new Decoder();
    const got: Frame[] = [];
    for (let i = 0; i < wire.length; i += size) got.push(...p.push(wire.slice(i, i + size)));
    expect(got, `pieces of ${size}`).toEqual(want);
  }
});

async function read(mock: Mock, id: string, token = 'good') {
  let run = adopt(emptyRun(id), { template: 'job_match', status: 'PENDING', steps: mock.doc(id).steps });
  const ids: string[] = [];
  const stop = new AbortController();
  await follow({
    url: `${mock.url}/v1/tasks/${id}/events`,
    headers: () => ({ Authorization: `Bearer ${token}` }),
    lastId: () => run.lastId,
    onFrame: (f) => {
      ids.push(f.id);
      run = apply(run, f);
    },
    ended: () => run.ended,
    poll: async () => {
      const res = await fetch(`${mock.url}/v1/tasks/${id}`, { headers: { Authorization: `Bearer ${token}` } });
      run = adopt(run, await res.json());
      return run.pollAfterMs;
    },
    signal: stop.signal,
    sleep: async () => {},
  });
  return { run, ids };
}

test('a stream that is cut repeatedly is read completely and without duplicates', async () => {
  const mock = await startMock({ pace: 0, cutEvery: 3, replayTooMuch: 2 });
  try {
    const id = mock.create('job_match');
    const { run } = await read(mock, id);
    expect(mock.connections(id)).toBeGreaterThan(5);
    expect(run.status).toBe('COMPLETED');
    expect(answerOf(run)).toBe(mock.answer(id));
    expect(run.items).toHaveLength(8);
  } finally {
    await mock.close();
  }
});

test('follow polls the status until the end if there is no stream', async () => {
  const mock = await startMock({ pace: 0, noStream: true });
  try {
    const id = mock.create('job_match');
    const { run } = await read(mock, id);
    expect(run.status).toBe('COMPLETED');
    expect(answerOf(run)).toBe(mock.answer(id));
  } finally {
    await mock.close();
  }
});

test('follow reports that the server is down until it answers again', async () => {
  const links: string[] = [];
  let calls = 0;
  let ended = false;
  const stop = new AbortController();
  await follow({
    url: '/events', headers: () => ({}), lastId: () => '', onFrame: () => {}, onLink: (l) => links.push(l), ended: () => ended,
    poll: async () => {
      if (++calls < 3) throw new Error('unreachable');
      if (calls === 4) ended = true;
      return 1;
    },
    signal: stop.signal, sleep: async () => {}, fetch: async () => { throw new Error('unreachable'); },
  });
  const first = links.indexOf('down');
  expect(links.slice(0, first)).not.toContain('live');
  expect(links.slice(first)).toEqual(['down', 'down', 'polling', 'waiting', 'polling', 'polling', 'closed']);
});

test('follow stops immediately if the token is rejected', async () => {
  const mock = await startMock({ pace: 0 });
  try {
    const id = mock.create('job_match');
    await expect(read(mock, id, 'bad')).rejects.toBeInstanceOf(Refused);
  } finally {
    await mock.close();
  }
});
