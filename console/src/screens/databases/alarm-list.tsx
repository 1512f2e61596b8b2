/** Alarms of a database: most of it was deleted within a minute. */
import { ask } from '../../api/client.ts'
import { useLoad } from '../../api/load.ts'
import { Button, LinkButton } from '../../parts/button.tsx'
import { confirm } from '../../parts/confirm.tsx'
import { ErrorNotice, Notice } from '../../parts/notice.tsx'
import { hashOf } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { time } from '../../strings/format.ts'
import type { Alarm } from './database-answers.ts'
import { placeOf, readAlarms } from './database-calls.ts'

const texts = en.databases.alarms

export function AlarmList({ database }: { readonly database: string }) {
  const {
    data = [],
    failure,
    reload,
  } = useLoad((signal) => readAlarms(database, signal), database, {
    every: 30_000,
  })
  if (failure !== null) return <ErrorNotice failure={failure} title={texts.notLoaded} onRetry={reload} />
  return (
    <>
      {data.map((alarm) => (
        <AlarmNotice key={alarm.id} alarm={alarm} onDismissed={reload} />
      ))}
    </>
  )
}

function AlarmNotice({ alarm, onDismissed }: { readonly alarm: Alarm; readonly onDismissed: () => void }) {
  const { id, database, deleted, of, since, until, account, device } = alarm
  const dismiss = () =>
    confirm({
      title: texts.dismissTitle,
      effects: [texts.dismissEffect],
      undo: texts.dismissUndo(time(since)),
      act: texts.dismiss,
      kind: 'primary',
      run: async () => {
        await ask(placeOf(database, 'alarms', id), { method: 'DELETE' })
        onDismissed()
      },
    })
  const who = device?.token ?? device?.client
  const timeMachine = ['databases', database, 'time-machine']
  const actions = (
    <>
      <LinkButton href={hashOf(timeMachine, { at: since })} icon="restore" isSmall>
        {texts.restore}
      </LinkButton>
      <LinkButton href={hashOf(timeMachine, { since, until })} isSmall>
        {texts.look}
      </LinkButton>
      <Button isSmall onClick={dismiss}>
        {texts.dismiss}
      </Button>
    </>
  )
  return (
    <Notice tone="warn" title={texts.title(deleted, of)} actions={actions} isAnnounced>
      <p>{texts.when(time(since), account ?? texts.nobody, who)}</p>
    </Notice>
  )
}
