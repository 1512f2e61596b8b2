import { runningPeer } from './peer.ts'
import { Databases } from './databases.ts'
import { FULL } from './trial.ts'
const peer = runningPeer('settee', process.argv[2] as string)
const { [process.argv[3] as string]: trial } = await import(`./trials/${process.argv[3]}.ts`)
const bench = new Databases(peer, { ...FULL, notes: 5000, diffs: Number(process.argv[4] ?? 500), gets: 20000, puts: 20000, rounds: 5 })
console.log(await trial.run(bench))
await peer.close()
