// For node --require: the agent, and the event loop's heartbeat.
'use strict';

const { isMainThread } = require('node:worker_threads');

const stackd = require('./index.js');

if (stackd.install()) {
  const limit = process.env.STACKD_EVENT_LOOP_MS;
  // Not a worker's: one that is terminated has no last word, and would be taken for one that hangs.
  if (isMainThread) stackd.watchEventLoop(limit === undefined ? undefined : Number(limit) || 0);
  if (process.env.STACKD_UNCAUGHT_EXCEPTIONS === '1') stackd.dumpOnUncaughtExceptions();
}
