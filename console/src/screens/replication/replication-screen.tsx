/** `#/replication`: jobs; `#/replication/move`: moving in; `#/replication/standby`: this server and its standby. */
import { server } from '../../api/session.ts'
import { Notice } from '../../parts/notice.tsx'
import { Page, Tabs } from '../../parts/page.tsx'
import { hashOf, type Route } from '../../shell/hash.ts'
import { en } from '../../strings/en.ts'
import { JobsPart } from './jobs-part.tsx'
import { MovePart } from './move-part.tsx'
import { StandbyPart } from './standby-part.tsx'
import './replication.css'

const { tabs: texts } = en.replication

const PARTS = [
  ['', texts.jobs],
  ['move', texts.move],
  ['standby', texts.standby],
] as const

export default function ReplicationScreen({ path }: Route) {
  const [segment = ''] = path
  const isHosted = server.value?.isHosted === true
  const tabs = PARTS.map(([each, text]) => ({
    href: hashOf(['replication', ...(each === '' ? [] : [each])]),
    text,
    isOn: each === segment,
  }))
  return (
    <Page
      title={en.replication.title}
      lead={en.replication.lead}
      tabs={<Tabs label={texts.label} tabs={tabs} />}
    >
      {segment === '' || !PARTS.some(([each]) => each === segment) ? (
        <JobsPart />
      ) : isHosted ? (
        <Notice tone="info">{segment === 'move' ? texts.noMove : texts.noStandby}</Notice>
      ) : segment === 'move' ? (
        <MovePart />
      ) : (
        <StandbyPart />
      )}
    </Page>
  )
}
