// A node for berth: it registers over HTTP, works its own Temporal task queue, sends heartbeats with its load, and
// withdraws before it stops.
import { cpus, freemem, loadavg, totalmem } from "node:os";
import { setTimeout as pause } from "node:timers/promises";
import { NativeConnection, Runtime, Worker } from "@temporalio/worker";
import { Api, Refused, type Registered } from "./api.js";
import { connectionOptions, dataConverter } from "./temporal.js";
import { capabilities, currentJobs, Translate } from "./translate.js";

const env = (name: string, fallback?: string): string => {
  const value = process.env[name] ?? fallback;
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
};
const slots = Number(env("BERTH_NODE_SLOTS", "4"));
const drain = Number(env("BERTH_NODE_DRAIN_MS", "20000"));
const api = new Api(env("BERTH_URL", "http://127.0.0.1:8080"), env("BERTH_TOKEN"), env("BERTH_NODE_ID"), capabilities, slots);

const stopping = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.once(signal, () => stopping.abort()); // a second signal ends the process immediately
}
Runtime.install({ shutdownSignals: [] }); // the node withdraws first, then the worker stops

const connection = await NativeConnection.connect(connectionOptions());
const namespace = env("BERTH_TEMPORAL_NAMESPACE", "default");

// One generation of this node and the worker on its task queue.
interface Membership extends Registered {
  worker: Worker;
  ended: Promise<void>;
}

// An error that a retry would not change.
class Fatal extends Error {}

let current: Membership | undefined;
const retired: Promise<void>[] = [];
let interval = 5000;
let latencyMs = 0;

async function join(last?: Membership): Promise<Membership> {
  if (last && (await api.superseded(last.generation))) throw new Fatal("another process has registered under this node id");
  const registered = await api.register(last?.generation);
  interval = registered.heartbeatIntervalMs;
  if (last && registered.generation === last.generation) return { ...last, ...registered };
  const worker = await Worker.create({
    connection,
    namespace,
    dataConverter: dataConverter(),
    taskQueue: registered.taskQueue,
    activities: { Translate },
    maxConcurrentActivityTaskExecutions: slots,
    maxConcurrentActivityTaskPolls: 1,
    maxHeartbeatThrottleInterval: "1s",
    shutdownGraceTime: drain,
  });
  const ended = worker.run();
  ended.catch((error: unknown) => {
    console.error("worker failed:", error);
    process.exitCode = 1;
    stopping.abort();
  });
  console.log(`node registered, generation ${registered.generation}, queue ${registered.taskQueue}`);
  return { ...registered, worker, ended };
}

// leave stops a generation's worker. Jobs dispatched before arrive within a second; running jobs finish.
async function leave(one: Membership): Promise<void> {
  await pause(1000);
  if (one.worker.getState() === "RUNNING") one.worker.shutdown();
  await one.ended.catch(() => undefined); // logged above
}

// beat sends a heartbeat and registers if necessary.
async function beat(): Promise<void> {
  current ??= await join();
  try {
    const begun = performance.now();
    interval = (await api.heartbeat(current.generation, load())) ?? interval;
    latencyMs = performance.now() - begun;
  } catch (error) {
    if (!(error instanceof Refused && error.status === 409)) throw error;
    const last = current; // this generation has expired: continue under the next one, on its queue
    current = await join(last);
    if (current.worker !== last.worker) retired.push(leave(last));
  }
}

function load() {
  const percent = (part: number) => Math.min(100, Math.max(0, 100 * part));
  return {
    cpuUsage: percent((loadavg()[0] ?? 0) / cpus().length),
    memoryUsage: percent(1 - freemem() / totalmem()),
    currentJobs: currentJobs(),
    latencyMs,
  };
}

// permanent reports whether a retry would not change an error: wrong settings at the start, or another process with this
// node's id.
const permanent = (error: unknown) =>
  error instanceof Fatal || (error instanceof Refused && (current ? error.status === 409 : error.status < 500 && error.status !== 429));

for (let failures = 0; !stopping.signal.aborted; ) {
  try {
    await beat();
    failures = 0;
  } catch (error) {
    if (permanent(error)) {
      console.error(String(error));
      process.exitCode = 1;
      break;
    }
    if (failures++ === 0) console.error(`API unreachable; retrying: ${error}`);
  }
  const wait = failures === 0 ? interval : Math.min(interval, 100 * 2 ** failures);
  await pause(wait * (0.9 + Math.random() / 10), undefined, { signal: stopping.signal }).catch(() => undefined);
}

if (current) {
  console.log("node stopping");
  await api.withdraw(current.generation).catch((error: unknown) => console.error(`withdrawal failed: ${error}`));
  await Promise.all([...retired, leave(current)]);
}
await connection.close();
console.log("node stopped");
