/**
 * kill -9, again and again, while more than forty writers write and three PouchDB devices sync: in any moment, and
 * inside compactions, migrations, uploads, checkpoints, purges and the making of databases (kill/moments.ts). After
 * every start, on the same folder and with no help:
 *
 * - what was acknowledged is there exactly, or the one write that its writer had sent after it and that has no answer;
 *   of a bulk each document by itself, of an attachment every byte or nothing (kill/ledger.ts, kill/audit.ts);
 * - numbers only grow, feeds and documents agree, and the counts of `GET /db` are true;
 * - devices go on from near where they were.
 *
 * The files are read as the kill has left them: `PRAGMA integrity_check`, whether anything lacks what it needs, and
 * the hash of every content (kill/files.ts).
 *
 *     SETTEE_KILLS=250 npx tap --timeout=0 test/faults/kill.test.ts     the long form
 */
import t from 'tap'
import { Run } from './kill/run.ts'

const KILLS = Number(process.env.SETTEE_KILLS ?? 3)

t.setTimeout(240_000 + KILLS * 20_000)

t.test(`${KILLS} kills`, async (t) => {
  const run = await Run.begin(t, KILLS)
  for (let at = 0; run.goesOn(at); at++) await run.round(at)
  await run.end()
})
