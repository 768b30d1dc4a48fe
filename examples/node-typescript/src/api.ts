// Client for the part of berth's HTTP API that a node uses: register, heartbeat, withdraw.
import { hostname } from "node:os";

export interface Registered {
  generation: number;
  taskQueue: string;
  heartbeatIntervalMs: number;
}

export interface Load {
  cpuUsage: number;
  memoryUsage: number;
  currentJobs: number;
  latencyMs: number;
}

export class Refused extends Error {
  constructor(readonly status: number, detail: string) {
    super(`HTTP ${status}: ${detail}`);
  }
}

export class Api {
  /** Identifies this run of the process. */
  readonly incarnation = { host: hostname(), pid: process.pid, startedAt: Date.now() };

  constructor(
    private readonly url: string,
    private readonly token: string,
    private readonly nodeId: string,
    private readonly capabilities: string[],
    private readonly slots: number,
  ) {}

  async register(previousGeneration?: number): Promise<Registered> {
    const body = {
      nodeId: this.nodeId,
      kind: "translate",
      incarnation: this.incarnation,
      hostname: this.incarnation.host,
      capabilities: this.capabilities,
      maxConcurrentJobs: this.slots,
      previousGeneration,
    };
    return (await this.call("POST", "/v1/nodes", body)) as Registered;
  }

  /** Returns the interval until the next heartbeat, undefined if it is unchanged. */
  async heartbeat(generation: number, load: Load): Promise<number | undefined> {
    const reply = await this.call("POST", `${this.path()}/heartbeat`, { generation, ...load });
    return (reply as Partial<Registered>).heartbeatIntervalMs;
  }

  /** Reports whether another process is registered under this node's id. */
  async superseded(generation: number): Promise<boolean> {
    try {
      const node = (await this.call("GET", this.path())) as {
        generation: number;
        state: string;
        incarnation: { host: string; pid: number; startedAt: number };
      };
      const { host, pid, startedAt } = node.incarnation;
      const own = host === this.incarnation.host && pid === this.incarnation.pid && startedAt === this.incarnation.startedAt;
      return node.generation > generation && node.state !== "dead" && !own;
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return false;
      throw error;
    }
  }

  async withdraw(generation: number): Promise<void> {
    await this.call("DELETE", `${this.path()}?generation=${generation}`);
  }

  private path(): string {
    return `/v1/nodes/${encodeURIComponent(this.nodeId)}`;
  }

  private async call(method: string, path: string, body?: unknown): Promise<unknown> {
    const response = await fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${this.token}`, "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(5000),
    });
    const text = await response.text();
    if (!response.ok) throw new Refused(response.status, text);
    return text === "" ? {} : JSON.parse(text);
  }
}
