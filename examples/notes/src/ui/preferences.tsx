import type { ComponentType } from 'preact'
import { About } from './about.tsx'
import { Icon, type IconName } from './icons.tsx'
import { Logging } from './logging.tsx'
import { hashOf, SECTIONS, type Section } from './route.ts'
import { Synchronization } from './synchronization.tsx'

interface SectionFace {
  readonly name: string
  readonly about: string
  readonly icon: IconName
  readonly Body: ComponentType
}

const FACES: Readonly<Record<Section, SectionFace>> = {
  synchronization: {
    name: 'Synchronization',
    about: 'Where your notes are synced',
    icon: 'sync',
    Body: Synchronization,
  },
  logging: { name: 'Main process logging', about: 'What the sync has done', icon: 'log', Body: Logging },
  about: { name: 'About', about: 'What is on this device', icon: 'info', Body: About },
}

/** On a wide screen the list of sections is beside the open section; on a phone it is a page of its own. */
export function Preferences({ section }: { readonly section: Section | null }) {
  const { name, Body } = FACES[section ?? 'synchronization']
  return (
    <main class={`preferences${section === null ? '' : ' has-section'}`}>
      <nav class="sections" aria-label="Preferences">
        <header class="list-head">
          <a
            class="bare"
            href={hashOf({ screen: 'notes', shelf: { kind: 'all' }, note: null })}
            aria-label="Back to the notes"
          >
            <Icon name="back" />
          </a>
          <h1>Preferences</h1>
        </header>
        <ul>
          {SECTIONS.map((each) => (
            <li key={each}>
              <a
                class={`section-link${each === (section ?? 'synchronization') ? ' is-on' : ''}`}
                href={hashOf({ screen: 'preferences', section: each })}
                aria-current={each === section ? 'page' : undefined}
              >
                <Icon name={FACES[each].icon} />
                <span>
                  {FACES[each].name}
                  <small>{FACES[each].about}</small>
                </span>
                <Icon name="next" />
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <section class="section" aria-label="Section">
        <header class="list-head">
          <a
            class="bare only-small"
            href={hashOf({ screen: 'preferences', section: null })}
            aria-label="Back to Preferences"
          >
            <Icon name="back" />
          </a>
          <h1>{name}</h1>
        </header>
        <div class="cards">
          <Body />
        </div>
      </section>
    </main>
  )
}
