/** Moves another server in: its address, what would come along, the move, and what devices need to do. */
import { useState } from 'preact/hooks'
import { ask, pathOf } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { ErrorNotice, Skeleton } from '../../parts/notice.tsx'
import type { Move } from './move-answers.ts'
import { MoveForm, type MoveInput, NEW_MOVE } from './move-form.tsx'
import { MoveShown } from './move-shown.tsx'

/** In ms. */
const RUNNING_MS = 1000
const IDLE_MS = 15_000

export function MovePart() {
  const [isRunning, setRunning] = useState(false)
  // The password stays in this page alone, so that the move can follow the plan.
  const [input, setInput] = useState<MoveInput>(NEW_MOVE)
  const [isAnew, setAnew] = useState(false)
  const { data, failure, reload } = useLoad(
    async (signal) => {
      const { moves } = await ask<{ moves: readonly Move[] }>('_settee/moves', { signal })
      const last = moves[0] ?? null
      setRunning(last !== null && last.ended_at === null)
      return last
    },
    'moves',
    { every: isRunning ? RUNNING_MS : IDLE_MS },
  )
  const start = async (isDryRun: boolean) => {
    await ask('_settee/moves', { json: bodyOf(input, isDryRun) })
    setAnew(false)
    setRunning(true)
    reload()
  }
  if (data === undefined) {
    return failure === null ? <Skeleton lines={6} /> : <ErrorNotice failure={failure} onRetry={reload} />
  }
  const isShown = data !== null && !isAnew
  return (
    <>
      {failure !== null && <ErrorNotice failure={failure} onRetry={reload} />}
      {isShown ? (
        <MoveShown
          move={data}
          hasAddress={input.address !== ''}
          onMove={() => start(false)}
          onPlan={() => start(true)}
          onStop={async () => {
            await ask(pathOf('_settee', 'moves', data.id), { method: 'DELETE' })
            reload()
          }}
          onOther={() => setAnew(true)}
        />
      ) : (
        <MoveForm input={input} onChange={setInput} onLook={() => start(true)} />
      )}
    </>
  )
}

function bodyOf(
  { address, name, password, databases, merges, keepsUuid }: MoveInput,
  isDryRun: boolean,
): object {
  const url = new URL(address.trim())
  if (name !== '') url.username = encodeURIComponent(name)
  if (password !== '') url.password = encodeURIComponent(password)
  const names = databases
    .split(/[,\s]+/)
    .map((each) => each.trim())
    .filter((each) => each !== '')
  return {
    source: url.href,
    dry_run: isDryRun,
    ...(names.length > 0 && { databases: names }),
    ...(merges && { merge: true }),
    ...(keepsUuid && { keep_uuid: true }),
  }
}
