import { Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'

export default function ReplicationScreen() {
  return <Page title={en.replication.title}>{null}</Page>
}
