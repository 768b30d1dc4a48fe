// The activity that berth's turns call, with a dictionary of a few words.
import { ApplicationFailure, Context } from "@temporalio/activity";

export interface JobInput {
  sessionId: string;
  turnId: string;
  jobId: string;
  dispatch: number;
  index: number;
  speakerId?: string;
  srcLang: string;
  tgtLang: string;
  text: string;
}

export interface JobOutput {
  text: string;
}

const dictionaries: Record<string, Record<string, string>> = {
  "en-es": {
    hello: "hola", world: "mundo", good: "buenos", morning: "días", the: "el", ship: "barco", is: "está",
    in: "en", harbour: "puerto", thank: "gracias", you: "a usted", friend: "amigo", and: "y", goodbye: "adiós",
  },
};

export const capabilities = Object.keys(dictionaries).map((pair) => `translate:${pair}`);

let running = 0;

/** Returns the number of running jobs. */
export const currentJobs = (): number => running;

export async function Translate(job: JobInput): Promise<JobOutput> {
  // Temporal treats a running job as lost after 5 s without a heartbeat, and berth dispatches it to another node.
  const heartbeat = setInterval(() => Context.current().heartbeat(), 1000);
  running++;
  try {
    const words = dictionaries[`${job.srcLang}-${job.tgtLang}`];
    if (!words) {
      // Another node may know the languages. For input that no node can process, the type is "invalid" and the failure
      // non-retryable.
      throw ApplicationFailure.retryable(`this node cannot translate ${job.srcLang} to ${job.tgtLang}`, "node_failed");
    }
    return { text: job.text.replace(/\p{L}+/gu, (word) => words[word.toLowerCase()] ?? word) };
  } finally {
    running--;
    clearInterval(heartbeat);
  }
}
