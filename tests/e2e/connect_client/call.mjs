// Calls every method by @connectrpc/connect-web: call.mjs URL FORMAT, FORMAT "json" or "binary". Prints one object: the answer of
// each unary method, the text of an export, and the name that a watch told of.
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { toJson } from "@bufbuild/protobuf";
import { ExportDumpRequest_Format, Stackd } from "./gen/stackd/v1/stackd_pb.js";

const [baseUrl, format] = process.argv.slice(2);
const client = createClient(Stackd, createConnectTransport({ baseUrl, useBinaryFormat: format === "binary" }));

async function exported(name) {
  const pieces = [];
  for await (const { data } of client.exportDump({ name, format: ExportDumpRequest_Format.JSON })) pieces.push(data);
  return Buffer.concat(pieces).toString();
}

async function watched(after) {
  for await (const { dump } of client.watchDumps({ after })) return dump.name;
}

const first = await client.createDump({});
const second = await client.createDump({});
// Before the answers, which show that it was.
const renamed = await client.resymbolizeDump({ name: first.name });
const answers = {};
for (const method of Stackd.methods) {
  if (method.methodKind !== "unary" || ["CreateDump", "DeleteDump", "ResymbolizeDump"].includes(method.name)) continue;
  try {
    answers[method.name] = toJson(method.output, await client[method.localName]({}));
  } catch (error) {
    answers[method.name] = { code: error.code, message: error.rawMessage };
  }
}
const refused = await client.deleteDump({ name: first.name }).catch((error) => error.rawMessage);
const told = {
  answers,
  refused,
  exported: await exported(first.name),
  watched: await watched(first.name),
  first: first.name,
  second: second.name,
  renamed: renamed.name,
};
console.log(JSON.stringify(told));
process.exit(0);
