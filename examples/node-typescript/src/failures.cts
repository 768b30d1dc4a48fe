// The failure converter that encrypts messages and stack traces: see temporal.ts.
import { DefaultFailureConverter } from "@temporalio/common";

export const failureConverter = new DefaultFailureConverter({ encodeCommonAttributes: true });
