// The connection to Temporal with TLS, an API key and encrypted payloads (docs/nodes.md, "Encrypted payloads").
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { DataConverter, Payload, PayloadCodec, SerializationContext } from "@temporalio/common";
import proto from "@temporalio/proto";
import type { NativeConnectionOptions } from "@temporalio/worker";

const setting = (name: string): string | undefined => process.env[name] || undefined;
const file = (name: string): Buffer | undefined => {
  const path = setting(name);
  return path === undefined ? undefined : readFileSync(path);
};

export function connectionOptions(): NativeConnectionOptions {
  const [ca, crt, key] = [file("BERTH_TEMPORAL_TLS_CA"), file("BERTH_TEMPORAL_TLS_CERT"), file("BERTH_TEMPORAL_TLS_KEY")];
  const name = setting("BERTH_TEMPORAL_TLS_SERVER_NAME");
  const apiKey = setting("BERTH_TEMPORAL_API_KEY");
  const on = setting("BERTH_TEMPORAL_TLS") === "true" || ca || crt || name || apiKey;
  return {
    address: setting("BERTH_TEMPORAL_ADDR") ?? "127.0.0.1:7233",
    apiKey,
    tls: on && {
      serverRootCACertificate: ca,
      serverNameOverride: name,
      clientCertPair: crt && key ? { crt, key } : undefined,
    },
  } as NativeConnectionOptions;
}

/** Returns undefined without keys. */
export function dataConverter(): DataConverter | undefined {
  const list = setting("BERTH_PAYLOAD_KEYS");
  if (list === undefined) return undefined;
  const codec = new Codec(list);
  return {
    payloadCodecs: [codec],
    // Temporal's SDK loads this module by its path.
    failureConverterPath: codec.encrypts ? fileURLToPath(new URL("failures.cjs", import.meta.url)) : undefined,
  };
}

const encoding = "binary/encrypted";
const serialized = proto.temporal.api.common.v1.Payload;

class Codec implements PayloadCodec {
  private readonly keys = new Map<string, Buffer>();
  private readonly current: string | undefined;

  constructor(list: string) {
    for (const [i, entry] of list.split(",").map((e) => e.trim()).entries()) {
      if (i === 0 && entry === "none") continue;
      const colon = entry.indexOf(":");
      const key = Buffer.from(entry.slice(colon + 1), "base64");
      if (colon < 1 || key.length !== 32) throw new Error(`BERTH_PAYLOAD_KEYS: entry ${i + 1} must be id:base64 with 32 bytes`);
      this.keys.set(entry.slice(0, colon), key);
      if (i === 0) this.current = entry.slice(0, colon);
    }
  }

  get encrypts(): boolean {
    return this.current !== undefined;
  }

  async encode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    return payloads.map((p) => this.encrypt(p, context?.workflowId ?? ""));
  }

  async decode(payloads: Payload[], context?: SerializationContext): Promise<Payload[]> {
    return payloads.map((p) => this.decrypt(p, context?.workflowId ?? ""));
  }

  private encrypt(payload: Payload, workflow: string): Payload {
    const id = this.current;
    if (id === undefined) return payload;
    const [salt, nonce] = [randomBytes(16), randomBytes(12)];
    const cipher = createCipheriv("aes-256-gcm", this.derive(id, salt), nonce).setAAD(associated(id, workflow));
    const text = [cipher.update(serialized.encode(payload).finish()), cipher.final()];
    const metadata: Record<string, Uint8Array> = { encoding: Buffer.from(encoding), "encryption-key-id": Buffer.from(id) };
    if (workflow !== "") metadata["encryption-workflow-id"] = Buffer.from(workflow);
    return { metadata, data: Buffer.concat([salt, nonce, ...text, cipher.getAuthTag()]) };
  }

  private decrypt(payload: Payload, expected: string): Payload {
    const field = (name: string) => Buffer.from(payload.metadata?.[name] ?? []).toString();
    if (field("encoding") !== encoding) return payload;
    const [id, workflow, data] = [field("encryption-key-id"), field("encryption-workflow-id"), Buffer.from(payload.data ?? [])];
    if (workflow !== "" && expected !== "" && workflow !== expected) throw new Error(`payload belongs to workflow ${workflow}`);
    const decipher = createDecipheriv("aes-256-gcm", this.derive(id, data.subarray(0, 16)), data.subarray(16, 28))
      .setAAD(associated(id, workflow))
      .setAuthTag(data.subarray(-16));
    return serialized.decode(Buffer.concat([decipher.update(data.subarray(28, -16)), decipher.final()]));
  }

  private derive(id: string, salt: Uint8Array): Buffer {
    const key = this.keys.get(id);
    if (!key) throw new Error(`payload is encrypted with key ${id}, which BERTH_PAYLOAD_KEYS does not contain`);
    return Buffer.from(hkdfSync("sha256", key, salt, "berth payload", 32));
  }
}

const associated = (id: string, workflow: string): Buffer => Buffer.from(`${encoding}\n${id}\n${workflow}`);
