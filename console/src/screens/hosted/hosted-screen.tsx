import { Page } from '../../parts/page.tsx'
import { en } from '../../strings/en.ts'

export default function HostedScreen() {
  return <Page title={en.hosted.title}>{null}</Page>
}
