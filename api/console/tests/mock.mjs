// A simulated API for the tests of the page: it accepts tasks, sends a scripted stream and serves the built page under the
// security policy of the real server. `node tests/mock.mjs [port]` runs it for manual testing.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';

export const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/**
 * @typedef {{ url: string, create: (template: string, o?: Record<string, any>) => string, doc: (id: string) => Record<string, any>,
 *   answer: (id: string) => string, connections: (id: string) => number, close: () => Promise<void> }} Mock
 */

const variable = (name, more = {}) => ({ name, kind: 'document', kinds: ['text', 'text_asset'], required: false, label: { en: name }, ...more });
const image = (name, group) => variable(name, { kind: 'image', kinds: ['image_asset'], group });
const posting = [variable('jobText', { group: 'job' }), image('jobImage', 'job'), image('image', 'job')];
const extra = [variable('detailedResume'), variable('notes', { kind: 'text' })];
const resume = variable('resume', { required: true });
const either = [variable('resume', { group: 'resume' }), image('image', 'resume'), extra[1]];
const template = (name, credits, mode, variables, more = {}) => ({ name, version: '1', title: { en: name }, locales: ['en', 'zh'], credits, mode, variables, steps: [], stages: [], items: [], ...more });
export const templates = [
  template('job_match', 3, 'stream', [resume, ...posting, ...extra], {
    stages: ['ingest', 'compare', 'score', 'deliver'].map((id) => ({ id, label: { en: id } })),
    items: [{ id: 'point', label: { en: 'Requirements' }, schema: { type: 'object', required: ['requirement', 'matched'], properties: { requirement: { type: 'string' }, matched: { type: 'boolean', title: 'Met' }, evidence: { type: 'string' } } } }],
  }),
  template('interview_prep', 2, 'stream', [resume, ...posting, ...extra]),
  template('resume_customize', 2, 'batch', [resume, ...posting, ...extra]),
  template('resume_summary', 1, 'batch', either),
  template('detailed_resume_summary', 2, 'batch', either),
  template('job_summary', 1, 'batch', [...posting, extra[1]]),
];

const points = {
  en: [
    ['Go in production, five years or more', true, 'Go since 2016, the last five years on services that take 40,000 requests a second.'],
    ['Distributed systems: leases, consensus, failover', true, 'Wrote the lease service that replaced our ZooKeeper locks.'],
    ['Redis, including Lua scripting', true, 'Moved rate limiting into one Lua script; p99 fell from 38 ms to 4 ms.'],
    ['PostgreSQL', true, 'Owned the ledger: 2 TB of PostgreSQL, logical replication, zero-downtime migrations.'],
    ['Temporal or another workflow engine', false, ''],
    ['Kubernetes in production', true, 'Ran 14 clusters on bare metal with one colleague.'],
    ['On-call experience', true, 'On call one week in four since 2018.'],
    ['Spoken Mandarin', false, ''],
  ],
  zh: [
    ['五年以上 Go 生产经验', true, '2016 年起使用 Go，近五年负责每秒四万请求的服务。'],
    ['分布式系统：租约、共识、故障转移', true, '编写租约服务，取代原有的 ZooKeeper 锁。'],
    ['Redis，包括 Lua 脚本', true, '把限流移入单个 Lua 脚本，p99 从 38 毫秒降到 4 毫秒。'],
    ['PostgreSQL', true, '负责账本：2 TB PostgreSQL，逻辑复制，不停机迁移。'],
    ['Temporal 或其他工作流引擎', false, ''],
    ['Kubernetes 生产经验', true, '与一位同事共同维护 14 个裸机集群。'],
    ['值班经验', true, '2018 年起每四周值班一周。'],
    ['英语口语', false, ''],
  ],
};

const answers = {
  en: `## A strong match, with one thing to learn

**Six of eight** requirements are proved by the résumé, among them the three the posting names first: *Go*, *distributed systems* and *Redis*.

### Where it fits

1. **Leases and failover.** The posting's main duty is scheduling over scarce capacity; the résumé's largest project is a lease service that replaced ZooKeeper locks.
2. **Lua on Redis.** Moving rate limiting into one script is the same craft the team describes, down to the measured \`p99\`.
3. **Operations.** Fourteen clusters and a regular on-call rotation answer "you build it, you run it".

### What is missing

- **Temporal.** Nothing in the résumé names a workflow engine. The lease service is near enough to make the case in a cover letter.
- **Spoken Mandarin** is asked for and not mentioned.

> Say first: "I replaced a lock service with leases, and can show what it did to the tail latency."

| Requirement group | Proved | Weight |
|---|---|---|
| Must have | 5 of 6 | high |
| Nice to have | 1 of 2 | low |
`,
  zh: `## 匹配度高，只有一处需要补足

八项要求中有**六项**能在简历中找到依据，其中包括职位最先列出的三项：*Go*、*分布式系统*和 *Redis*。

### 契合之处

1. **租约与故障转移。** 职位的核心职责是在稀缺容量上做调度；简历中最大的项目正是取代 ZooKeeper 锁的租约服务。
2. **Redis 上的 Lua。** 把限流移入单个脚本，与团队描述的做法一致，并给出了实测的 \`p99\`。
3. **运维。** 十四个集群与固定值班，回应了“谁开发谁运维”。

### 尚缺之处

- **Temporal。** 简历没有提到任何工作流引擎，可在求职信中用租约服务说明相近的经验。
- **英语口语**：职位要求，简历未提及。

> 开场可以说：“我用租约取代了锁服务，并能说明尾延迟因此发生了什么变化。”
`,
};

const ocr = { en: 'Senior Backend Engineer, Scheduling\nHarbour Systems, Rotterdam\n\nMust have\n- Five years of Go in production\n- Redis, including Lua scripting', zh: '高级后端工程师（调度方向）\n港湾系统 · 上海\n\n任职要求\n- 五年以上 Go 生产经验\n- Redis，包括 Lua 脚本' };

const batch = {
  name: 'Mara Lindqvist', headline: 'Backend engineer: leases, ledgers and the last millisecond', yearsOfExperience: 9,
  summary: 'Nine years of backend work, the last five in Go. Builds the parts others queue for, and measures them.',
  skillGroups: [{ group: 'Languages', skills: ['Go', 'Lua', 'SQL'] }, { group: 'Systems', skills: ['Redis', 'PostgreSQL', 'Kubernetes'] }],
  experience: [
    { title: 'Staff engineer', organisation: 'Tidewater', period: '2020 to now', achievements: [{ what: 'Replaced ZooKeeper locks with a lease service', result: 'p99 from 38 ms to 4 ms', skills: ['Go', 'Redis'] }, { what: 'Zero-downtime ledger migration', result: null }] },
    { title: 'Engineer', organisation: 'Kaimuur', period: '2016 to 2020', achievements: [{ what: 'Ran 14 Kubernetes clusters with one colleague' }] },
  ],
  education: [{ institution: 'TU Delft', degree: 'MSc Computer Science', period: '2014 to 2016' }],
  strengths: ['Measures before and after: “p99 fell from 38 ms to 4 ms”'],
  gaps: ['No workflow engine is named'],
};

function script(task) {
  const { template, locale, steps } = task;
  const zh = locale === 'zh';
  const out = [];
  const say = (event, stage, data = {}, wait = 1) => out.push({ event, wait, data: { type: event, taskId: task.taskId, serviceId: 'console', stage, ...data } });
  say('queued', 'queue', { position: 3, etaSeconds: 12 }, 1);
  say('queued', 'queue', { position: 1, etaSeconds: 4 }, 4);
  const first = steps[0];
  say('start', first.name === 'ocr' ? 'ocr' : first.name === 'match' ? 'ingest' : 'summary', { queue: first.queue, model: first.model, tier: 'paid', timeoutSec: 300, requestId: 'r1', traceId: 't1' }, 4);
  for (const step of steps.slice(0, -1)) {
    if (step.name === 'ocr') {
      say('stage_progress', 'ocr', { status: 'OCR_PENDING', message: zh ? '正在识别图片文字' : 'reading the picture' }, 1);
      say('token_batch', 'ocr', { text: ocr[locale], count: 8 }, 8);
    } else {
      say('stage_progress', 'summary', { status: 'SUMMARY_PENDING', message: zh ? '正在概括职位' : 'summarising the posting' }, 2);
    }
  }
  if (template === 'job_match' || template === 'interview_prep') {
    if (template === 'job_match') {
      say('stage_progress', 'ingest', { status: 'MATCH_PENDING', message: zh ? '收集上下文' : 'gathering context' }, 8);
      const all = points[locale].map(([requirement, matched, evidence]) => ({ kind: 'point', value: { requirement, matched, evidence } }));
      say('stage_progress', 'compare', { items: all.slice(0, 5) }, 4);
      say('stage_progress', 'compare', { items: all.slice(5) }, 2);
      say('stage_progress', 'score', { message: zh ? '75 分' : '75 of 100' }, 2);
    }
    const stage = template === 'job_match' ? 'deliver' : 'answer';
    const text = task.answer ?? answers[locale];
    const words = text.match(/\s*\S{1,8}/g).concat(text.match(/\s*$/)?.[0] ?? '');
    const stumble = task.reset ? Math.floor(words.length / 3) : -1;
    say('token', stage, { text: words[0] });
    for (let i = 1; i < words.length; i += 4) {
      if (stumble >= 0 && i > stumble && i <= stumble + 4) {
        say('reset', stage, { message: zh ? '处理程序丢失' : 'the worker was lost', attempt: 2 }, 3);
        say('token_batch', stage, { text: words.slice(0, i).join(''), count: i }, 6);
      }
      say('token_batch', stage, { text: words.slice(i, i + 4).join(''), count: 4 }, 1);
    }
    if (task.fail) say('error', stage, { code: 'provider_unavailable', message: zh ? '模型服务连续失败' : 'the provider kept failing' });
    else say('done', stage, { text, usage: { inputTokens: 1432, outputTokens: 518 } }, 1);
  } else {
    say('done', 'answer', { result: batch, usage: { inputTokens: 702, outputTokens: 388 } }, 10);
  }
  return out;
}

/**
 * @param {{ port?: number, pace?: number, cutEvery?: number, replayTooMuch?: number, noStream?: boolean, history?: number }} [o]
 * @returns {Promise<Mock>}
 */
export async function startMock(o = {}) {
  const pace = o.pace ?? 120;
  const tasks = new Map();
  const listeners = new Set();
  const dist = fileURLToPath(new URL('../dist/', import.meta.url));

  const create = (template, extra = {}) => {
    const taskId = extra.taskId ?? `t_${(tasks.size + 1).toString().padStart(4, '0')}${Math.random().toString(36).slice(2, 14)}`;
    const names = [...(extra.image ? ['ocr'] : []), ...(template === 'job_match' ? ['summary', 'match'] : [template === 'interview_prep' ? 'interview' : template === 'resume_customize' ? 'customize' : 'summary'])];
    const steps = names.map((name) => ({
      name, mode: name === 'ocr' ? 'vision' : name === 'match' || name === 'interview' ? 'stream' : 'batch',
      queue: name === 'ocr' ? 'q_paid_vision' : name === 'match' || name === 'interview' ? 'q_paid_stream' : 'q_paid_batch',
      model: name === 'ocr' ? 'glm-4.1v-thinking-flash' : name === 'match' ? 'deepseek-reasoner' : 'deepseek-chat',
      template,
    }));
    const task = { taskId, template, locale: 'en', serviceId: 'console', steps, at: 0, sent: [], connections: 0, status: 'PENDING', stepIndex: 0, createdAt: new Date().toISOString(), ...extra };
    task.script = script(task);
    tasks.set(taskId, task);
    if (pace > 0) void play(task);
    else while (advance(task));
    return taskId;
  };

  const advance = (task) => {
    const next = task.script[task.at];
    if (!next || task.endedAt) return false;
    task.at++;
    next.data.ts = Date.now();
    task.sent.push({ id: `1700000000000-${task.at}`, ...next });
    if (next.data.status) {
      task.status = next.data.status;
      task.stepIndex = task.steps.findIndex((s) => next.data.status === `${s.name.toUpperCase()}_PENDING`);
    }
    if (next.event === 'token' && next.data.stage !== 'ocr') task.status = 'STREAMING';
    if (next.event === 'done') Object.assign(task, { status: 'COMPLETED', text: next.data.text, result: next.data.result, usage: next.data.usage, endedAt: new Date().toISOString() });
    if (next.event === 'error') Object.assign(task, { status: next.data.code === 'cancelled' ? 'CANCELLED' : 'FAILED', errorCode: next.data.code, errorMessage: next.data.message, endedAt: new Date().toISOString() });
    for (const wake of listeners) wake();
    return true;
  };
  const play = async (task) => {
    while (task.script[task.at] && !task.endedAt) {
      await new Promise((r) => setTimeout(r, pace * task.script[task.at].wait).unref());
      advance(task);
    }
  };

  const doc = (id) => {
    const t = tasks.get(id);
    return {
      taskId: t.taskId, template: t.template, locale: t.locale, serviceId: t.serviceId, tier: 'paid', status: t.status, steps: t.steps, stepIndex: t.stepIndex,
      createdAt: t.createdAt, endedAt: t.endedAt, text: t.text, result: t.result, usage: t.usage ?? { inputTokens: 0, outputTokens: 0 }, pollAfterMs: 3000,
      provider: 'local simulator', error: t.errorCode ? { code: t.errorCode, message: t.errorMessage } : undefined,
      links: { temporal: `http://127.0.0.1:8233/namespaces/default/workflows/task%3A${t.taskId}` },
    };
  };

  const server = createServer(async (req, res) => {
    const url = new URL(req.url, 'http://x');
    const json = (status, body) => res.writeHead(status, { 'Content-Type': status < 400 ? 'application/json' : 'application/problem+json' }).end(JSON.stringify(body));
    const problem = (status, code, detail, field) => json(status, { type: 'about:blank', title: code, status, code, detail, field });
    if (!url.pathname.startsWith('/v1/')) return page(url.pathname, res);
    if (req.headers.authorization !== 'Bearer good') return problem(401, 'unauthenticated', 'the token does not verify');
    let body = Buffer.alloc(0);
    for await (const chunk of req) body = Buffer.concat([body, chunk]);
    const m = /^\/v1\/tasks\/([^/]+)(\/events)?$/.exec(url.pathname);
    if (url.pathname === '/v1/me') return json(200, { userId: 'alice', scopes: ['user'], tier: 'paid', credits: 5 });
    if (url.pathname === '/v1/templates') return json(200, { templates });
    if (url.pathname === '/v1/assets') {
      if (!body.includes('image/png') && !body.includes('image/jpeg')) return problem(415, 'unsupported_media', 'the upload is not of a kind we read', 'file');
      return json(201, { assetId: 'a_mock' });
    }
    if (url.pathname === '/v1/tasks' && req.method === 'POST') {
      const s = JSON.parse(body.toString());
      const v = s.variables;
      if (v.notes === '429') return json(429, { status: 429, code: 'rate_limited', detail: 'too many requests', rateLimited: true, retryAfter: 7 });
      if (templates.find((t) => t.name === s.template)?.variables.some((x) => x.name === 'resume' && x.required) && !v.resume) return problem(422, 'invalid', 'is missing: ' + s.template + ' needs it', 'variables.resume');
      if (v.jobText?.trim() === '?') return problem(422, 'invalid', 'is too short to be a posting', 'variables.jobText');
      const taskId = create(s.template, { locale: s.locale, serviceId: s.serviceId, image: Boolean(v.jobImage ?? v.image), reset: /reset/.test(v.notes), fail: /fail/.test(v.notes), ...(s.taskId ? { taskId: s.taskId } : {}) });
      return json(202, { taskId, status: 'PENDING', queue: 'q_paid_stream', model: 'deepseek-chat', tier: 'paid', position: 3, etaSeconds: 12, pollAfterMs: 3000, eventsUrl: `/v1/tasks/${taskId}/events` });
    }
    if (url.pathname === '/v1/tasks') {
      const from = Number(url.searchParams.get('cursor') ?? 0);
      const limit = Number(url.searchParams.get('limit') ?? 20);
      const all = [...tasks.keys()].reverse().map(doc);
      return json(200, { tasks: all.slice(from, from + limit), nextCursor: from + limit < all.length ? String(from + limit) : '' });
    }
    const task = m && tasks.get(m[1]);
    if (!task) return problem(404, 'not_found', 'no such task');
    if (!m[2] && req.method === 'DELETE') {
      task.script.splice(task.at, Infinity, { event: 'error', wait: 1, data: { type: 'error', taskId: task.taskId, serviceId: 'console', stage: 'deliver', code: 'cancelled', message: 'cancelled' } });
      return json(202, {});
    }
    if (!m[2]) return json(200, doc(task.taskId));
    return events(req, res, task);
  });

  const events = (req, res, task) => {
    task.connections++;
    if (o.noStream) return res.writeHead(404).end();
    const last = Number(/-(\d+)$/.exec(req.headers['last-event-id'] ?? '')?.[1] ?? 0);
    let at = Math.max(0, last - (o.replayTooMuch ?? 0));
    let wrote = 0;
    res.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    res.write(': welcome\n\n');
    const flush = () => {
      while (at < task.sent.length) {
        const e = task.sent[at++];
        const frame = `id: ${e.id}\nevent: ${e.event}\ndata: ${JSON.stringify(e.data)}\n\n`;
        if (o.cutEvery && at > last && ++wrote > o.cutEvery) {
          res.end(frame.slice(0, frame.length / 2));
          return stop();
        }
        res.write(frame);
        if (e.event === 'done' || e.event === 'error') {
          res.end();
          return stop();
        }
      }
    };
    const stop = () => listeners.delete(flush);
    listeners.add(flush);
    res.on('close', stop);
    flush();
  };

  const page = async (path, res) => {
    const file = join(dist, normalize(path === '/' ? '/index.html' : path));
    const kind = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.woff2': 'font/woff2' }[extname(file)];
    try {
      res.writeHead(200, { 'Content-Type': kind ?? 'application/octet-stream', 'Content-Security-Policy': policy }).end(await readFile(file));
    } catch {
      res.writeHead(404).end();
    }
  };

  for (let i = 0; i < (o.history ?? 0); i++) {
    const template = templates[i % 6].name;
    const id = create(template, { createdAt: new Date(Date.now() - (o.history - i) * 47 * 60_000).toISOString(), locale: i % 3 ? 'en' : 'zh', fail: i % 5 === 4 });
    while (advance(tasks.get(id)));
  }
  await new Promise((r) => server.listen(o.port ?? 0, '127.0.0.1', r));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    create, doc,
    answer: (id) => tasks.get(id).answer ?? answers[tasks.get(id).locale],
    connections: (id) => tasks.get(id).connections,
    close: () => new Promise((r) => { server.closeAllConnections(); server.close(() => r()); }),
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock({ port: Number(process.argv[2] ?? 4178), history: 27 });
  process.stdout.write(`${mock.url}/#token=good\n`);
}
