import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'

/** One instruction of a Dockerfile, with its `--` options separate. */
export interface Instruction {
  readonly name: string
  readonly flags: Readonly<Record<string, string>>
  readonly rest: string
}

/** A stage after its last instruction; a folder serves as its file system. */
export interface Stage {
  readonly root: string
  workdir: string
  readonly env: Record<string, string>
  /** The last instruction of each kind: USER, ENTRYPOINT, CMD, HEALTHCHECK, VOLUME, EXPOSE. */
  readonly last: Map<string, Instruction>
}

export function parseDockerfile(text: string): Instruction[] {
  const lines = text.split('\n').filter((line) => !/^\s*(#|$)/.test(line))
  const joined = lines.join('\n').replaceAll(/\\\n\s*/g, '')
  return joined.split('\n').map((line) => {
    const [name = '', ...words] = line.trim().split(/\s+/)
    const plain = words.findIndex((word) => !word.startsWith('--'))
    const flags = words.slice(0, plain).map((word) => word.slice(2).split('=', 2) as [string, string])
    const rest = line.trim().replace(/^\S+(\s+--\S+)*\s+/, '')
    return { name: name.toUpperCase(), flags: Object.fromEntries(flags), rest }
  })
}

/** The words of an exec form such as `["node", "x"]`; throws for a shell form, which would swallow signals. */
export function execForm(instruction: Instruction | undefined): string[] {
  return JSON.parse(instruction?.rest.replace(/^CMD\s+/, '') ?? 'null') as string[]
}

/** Copies the files that git tracks, or would track, and that .dockerignore (`*` with exceptions) does not exclude. */
export function copyContext(source: string, target: string): void {
  const [all, ...exceptions] = readFileSync(join(source, '.dockerignore'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
  if (all !== '*' || exceptions.some((line) => !/^![\w.-]+$/.test(line))) {
    throw new Error('.dockerignore has a form that this test does not understand.')
  }
  const args = ['ls-files', '-z', '--cached', '--others', '--exclude-standard', '--deduplicate', '--']
  const names = exceptions.map((line) => line.slice(1))
  const list = execFileSync('git', [...args, ...names], { cwd: source, encoding: 'utf8' })
  for (const file of list.split('\0').filter(Boolean)) cpSync(join(source, file), join(target, file))
}

/**
 * Runs a Dockerfile without Docker: each stage in its own folder, COPY as copying between folders, RUN as a shell in
 * the stage's work folder. `apt-get` steps are skipped, because the machine already has the compiler.
 * @returns the last stage
 */
export function runDockerfile(
  instructions: readonly Instruction[],
  folders: { readonly context: string; readonly stages: string },
  run: (command: string, cwd: string, env: Record<string, string>) => void,
): Stage {
  const stages = new Map<string, Stage>()
  let stage: Stage | undefined
  for (const instruction of instructions) {
    if (instruction.name === 'FROM') {
      const root = join(folders.stages, String(stages.size))
      stage = { root, workdir: '/', env: {}, last: new Map() }
      stages.set(/ AS (\S+)$/i.exec(instruction.rest)?.[1] ?? String(stages.size), stage)
      mkdirSync(root)
    } else if (stage) {
      carryOut(instruction, stage, (name) => (name ? stages.get(name)!.root : folders.context), run)
    }
  }
  return stage!
}

function carryOut(
  instruction: Instruction,
  stage: Stage,
  sourceOf: (stageName: string | undefined) => string,
  run: (command: string, cwd: string, env: Record<string, string>) => void,
): void {
  const { name, flags, rest } = instruction
  const here = join(stage.root, stage.workdir)
  if (name === 'WORKDIR') {
    stage.workdir = join(stage.workdir, rest)
    mkdirSync(join(stage.root, stage.workdir), { recursive: true })
  } else if (name === 'ENV') {
    for (const [, key, value] of rest.matchAll(/(\w+)=(\S+)/g)) stage.env[key!] = value!
  } else if (name === 'COPY') {
    copy(sourceOf(flags.from), stage, rest)
  } else if (name === 'RUN') {
    if (/^apt-get /.test(rest)) return
    if (/\s\//.test(rest)) throw new Error(`RUN ${rest}: it would touch this machine, not a container.`)
    run(rest, here, stage.env)
  } else {
    stage.last.set(name, instruction)
  }
}

/** A folder's content goes into the target; a file into it when the target ends with `/`. */
function copy(source: string, stage: Stage, rest: string): void {
  const words = rest.split(/\s+/)
  const target = words.pop()!
  const to = target.startsWith('/') ? join(stage.root, target) : join(stage.root, stage.workdir, target)
  for (const word of words) {
    const file = target.endsWith('/') ? join(to, basename(word)) : to
    cpSync(join(source, word), file, { recursive: true, verbatimSymlinks: true })
  }
}
