// Answers of the interface below `api/`. Written by the test `the_types_of_the_scripts_are_those_of_the_answers`
// with MAVERL_RECORD=1, from the answers on the run of the tests.

/** Answer of `runs`. */
export type Runs = Array<{
  after: {
    high: number;
    low: number;
    mean: number;
  } | null;
  algorithm: string;
  before: {
    high: number;
    low: number;
    mean: number;
  } | null;
  name: string;
  notices: number;
  orchestra: string;
  problem: null;
  progress: null;
  r: string;
  seed: number;
  state: string;
  step: number;
  steps: number;
  tracking: unknown[];
}>;

/** Answer of `runs/0`. */
export type Run = {
  after: {
    greedy: {
      high: number;
      low: number;
      mean: number;
    };
    overall: {
      avg: {
        high: number;
        low: number;
        mean: number;
      };
      episodes: number;
      pass: Record<string, {
        high: number;
        low: number;
        mean: number;
      }>;
      score_mean: number;
      tasks: number;
    };
    samples: number;
    split: string;
    unscored: number;
  } | null;
  before: {
    greedy: {
      high: number;
      low: number;
      mean: number;
    };
    overall: {
      avg: {
        high: number;
        low: number;
        mean: number;
      };
      episodes: number;
      pass: Record<string, {
        high: number;
        low: number;
        mean: number;
      }>;
      score_mean: number;
      tasks: number;
    };
    samples: number;
    split: string;
    unscored: number;
  } | null;
  episodes: number;
  forgotten: number;
  gain: {
    high: number;
    low: number;
    mean: number;
    tasks: number;
  } | null;
  holds: {
    rows: boolean;
    samples: boolean;
  };
  measure: null;
  notices: Array<{
    level: string;
    link: null;
    step: null;
    text: string;
  }>;
  plan: {
    endpoints: unknown[];
    environment: string;
    environments: unknown[];
    summary: {
      policies: Array<{
        adapter: null;
        agents: string[];
        bytes: number;
        name: string;
        parameters: number;
        trained: boolean;
        worker: string;
      }>;
      seats: Array<{
        max_tokens: number;
        policy: string;
        seat: string;
        temperature: number;
        trained: boolean;
      }>;
      workers: Array<{
        activation_bytes: number;
        gradient_bytes: number;
        kv_bytes: number;
        model: string;
        moment_bytes: number;
        name: string;
        path: string;
        trained: boolean;
        weight_bytes: number;
      }>;
    };
  };
  provenance: {
    data: Record<string, string>;
    device: string;
    threads: number;
    version: string;
    weights: Record<string, string>;
  };
  run: {
    after: {
      high: number;
      low: number;
      mean: number;
    } | null;
    algorithm: string;
    before: {
      high: number;
      low: number;
      mean: number;
    } | null;
    name: string;
    notices: number;
    orchestra: string;
    problem: null;
    progress: null;
    r: string;
    seed: number;
    state: string;
    step: number;
    steps: number;
    tracking: unknown[];
  };
  scanning: null;
  seats: string[];
  stages: string[];
  summary: null;
  validations: unknown[];
};

/** Answer of `runs/0/config`. */
export type Config = {
  given: string;
  resolved: string;
};

/** Answer of `runs/0/series`. */
export type Series = {
  columns: Record<string, number[]>;
  next: null;
  steps: number[];
};

/** Answer of `runs/0/episodes?limit=500`. */
export type Episodes = {
  of: number;
  rows: Array<{
    answer: string;
    at: number[];
    fault: null;
    index: number;
    n: number;
    score: number;
    seats: Record<string, number[]>;
    solved: boolean;
    source: string;
    stage: string;
    step: number;
    task: string;
    tokens: number;
  }>;
  scanning: null;
  total: number;
};

/** Answer of `runs/0/episodes/train/2/0`. */
export type Episode = {
  acts: Array<{
    action: {
      text: string;
    };
    done: boolean;
    environment: null;
    nth: number;
    observation: string;
    path: number[];
  }>;
  answer: string;
  has_samples: boolean;
  name: string;
  of_task: Array<{
    index: number;
    n: number;
    score: number;
    solved: boolean;
    step: number;
  }>;
  outcome: {
    scored: {
      reward: number;
      solved: boolean;
    };
  };
  rewards: Array<{
    name: string;
    of: {
      turn: number;
    };
    value: number;
  }>;
  row: {
    answer: string;
    at: number[];
    fault: null;
    index: number;
    n: number;
    score: number;
    seats: Record<string, number[]>;
    solved: boolean;
    source: string;
    stage: string;
    step: number;
    task: string;
    tokens: number;
  };
  seats: string[];
  task: {
    data: Record<string, unknown>;
    id: string;
    question: string;
    source: string;
  };
  times: number[][];
  turns: Array<{
    error: null | string;
    forked: boolean;
    masked: boolean;
    path: number[];
    policy: string;
    prompt: Array<{
      content: string;
      role: string;
    }>;
    reply: {
      chars: number;
      start: string;
    } | string;
    reward: {
      parts: Array<{
        name: string;
        of: string;
        value: number;
      }>;
      score: number;
      total: number;
    };
    sample: {
      arithmetic: {
        advantage: number;
        centered: number;
        deviation: number;
        relative: number;
        unit: number;
      };
      record: {
        advantage: number;
        episode: number;
        group: number;
        policy: string;
        reward: number;
        turn: number;
      };
    };
    saw: Array<{
      act?: number;
      turn?: number;
    }>;
    seat: string;
    shared: null;
    shortened: number;
    tokens: {
      completion: number;
      finish: string;
      logprob_sum: number;
      prompt: number;
      temperature: number;
      version: number;
    };
    tools: unknown[];
    truncated: boolean;
    untrained: null;
  }>;
};

/** Answer of `runs/0/episodes/train/2/0/turns/0`. */
export type Turn = {
  prompt: Array<{
    content: string;
    role: string;
  }>;
  reply: string;
  tools: unknown[];
};

/** Answer of `runs/0/episodes/train/2/0/turns/0/tokens`. */
export type Tokens = {
  clip: number[];
  completion: {
    advantage: number[];
    bytes: Record<string, unknown>;
    entropy: number[];
    ids: number[];
    logprob: number[];
    moved: number[];
    special: number[];
    texts: string[];
  };
  error: null;
  finish: string;
  name: string;
  path: number[];
  policy: string;
  prompt: {
    bytes: Record<string, unknown>;
    ids: number[];
    special: unknown[];
    texts: string[];
  };
  prompt_tokens: number;
  row: {
    answer: string;
    at: number[];
    fault: null;
    index: number;
    n: number;
    score: number;
    seats: Record<string, number[]>;
    solved: boolean;
    source: string;
    stage: string;
    step: number;
    task: string;
    tokens: number;
  };
  sample: {
    advantage: number;
    episode: number;
    group: number;
    policy: string;
    reward: number;
    turn: number;
  };
  seat: string;
  shared: {
    path: number[];
    tokens: number;
    turn: number;
  } | null;
  temperature: number;
  tokens_every: number;
  turns: number;
  version: number;
  words: boolean;
};

/** Answer of `runs/0/spans`. */
export type Spans = {
  of: number;
  steps: Array<{
    samples: Record<string, number[][]>;
    spans: ((null | number | string)[])[];
    start: number;
    step: number;
  }>;
};

/** Answer of `runs/0/clock/2`. */
export type Clock = {
  step: number;
  turns: ((number | string)[])[];
};

/** Answer of `runs/0/team`. */
export type Team = {
  early: null;
  late: {
    episodes: number;
    score: number;
    seats: Record<string, {
      solved: {
        episodes: number;
        failed: number;
        malformed: number;
        parts: number;
        reward: number;
        tokens: number;
        truncated: number;
        turns: number;
      };
      unsolved: {
        episodes: number;
        failed: number;
        malformed: number;
        parts: number;
        reward: number;
        tokens: number;
        truncated: number;
        turns: number;
      };
    }>;
    solved: number;
    steps: number[];
  } | null;
  parts: ((number | string)[])[];
  times: {
    seats: Record<string, {
      alone: number;
      busy: number;
      open: number;
      waited: number;
    }>;
    seconds: number;
  } | null;
};

/** Answer of `runs/0/replies`. */
export type Replies = {
  early: null;
  fall: {
    step: null;
    text: string;
  } | null;
  late: number[] | null;
  lost: {
    episodes: number;
    others: ((number | string)[])[];
    seat: null;
    seats: Record<string, number>;
    text: string;
    unsolved: number;
  } | null;
  replaced: null;
  reward: null | string;
  seats: Record<string, {
    distinct: number;
    early: null;
    few: boolean;
    late: {
      solved: number;
      unsolved: number;
    };
    lines: Array<{
      early: null;
      late: {
        solved: number;
        unsolved: number;
      };
      text: string;
    }>;
    seen: boolean;
  }>;
  unreadable?: number;
};

/** Answer of `runs/0/steps/1`. */
export type Step = {
  before: {
    episodes: number;
    score: number;
    seats: Record<string, {
      solved: {
        episodes: number;
        failed: number;
        malformed: number;
        parts: number;
        reward: number;
        tokens: number;
        truncated: number;
        turns: number;
      };
      unsolved: {
        episodes: number;
        failed: number;
        malformed: number;
        parts: number;
        reward: number;
        tokens: number;
        truncated: number;
        turns: number;
      };
    }>;
    solved: number;
    steps: number[];
  } | null;
  change: {
    answer: string;
    before: number;
    by: number;
    cause: null;
    interval: number[];
    mix: number;
    new: number;
    now: number;
    parts: string;
    sources: Array<{
      before: {
        episodes: number;
        score: number;
      };
      mix: number;
      now: {
        episodes: number;
        score: number;
      };
      source: string;
      tasks: number[];
      within: number;
    }>;
    terms: Array<{
      by: number;
      cause: {
        kind: string;
        seat: null | string;
      };
      episodes: number[];
      example: (null | number)[] | null;
      text: string;
      weighted: number;
    }>;
    text: string[];
  } | null;
  earlier: number[] | null;
  estimator: {
    baseline: string;
    eps: number;
    estimator: string;
    normalize_std: boolean;
    singleton: string;
  };
  now: {
    episodes: number;
    score: number;
    seats: Record<string, {
      solved: {
        episodes: number;
        failed: number;
        malformed: number;
        parts: number;
        reward: number;
        tokens: number;
        truncated: number;
        turns: number;
      };
      unsolved: {
        episodes: number;
        failed: number;
        malformed: number;
        parts: number;
        reward: number;
        tokens: number;
        truncated: number;
        turns: number;
      };
    }>;
    solved: number;
    steps: number[];
  };
  of: number;
  step: number;
  tasks: Array<{
    before: {
      episodes: number;
      score: number;
      solved: number;
    };
    now: {
      episodes: number;
      score: number;
      solved: number;
    };
    task: string;
  }>;
  text: string[];
  usual: null | number;
};

/** Answer of `runs/0/groups`. */
export type Largest = {
  agents: Array<{
    advantages: number;
    equal: number;
    group: {
      by: string;
      deviation: number;
      id: number;
      mean: number;
      seat: string;
      size: number;
      source: string;
      spread: boolean;
      task: string;
    };
    reward: number;
    samples: number;
    share: number;
    size: number;
    step: number;
    weight: number;
  }>;
  estimator: {
    baseline: string;
    eps: number;
    estimator: string;
    normalize_std: boolean;
    singleton: string;
  };
  groups: Array<{
    advantages: number;
    group: {
      by: string;
      deviation: number;
      id: number;
      mean: number;
      seat: string;
      size: number;
      source: string;
      spread: boolean;
      task: string;
    };
    reward: number;
    samples: number;
    share: number;
    size: number;
    step: number;
    weight: number;
  }>;
  of: number;
  samples: number;
  step: null;
  steps: number[];
  tasks: Array<{
    advantages: number;
    reward: number;
    samples: number;
    share: number;
    size: number;
    step: number;
    task: {
      groups: Array<{
        id: number;
        seat: string;
        weight: number;
      }>;
      source: string;
      task: string;
    };
    weight: number;
  }>;
};

/** Answer of `runs/0/groups/2`. */
export type Groups = {
  agents: Array<{
    advantages: number;
    equal: number;
    group: {
      by: string;
      deviation: number;
      id: number;
      mean: number;
      seat: string;
      size: number;
      source: string;
      spread: boolean;
      task: string;
    };
    reward: number;
    samples: number;
    share: number;
    size: number;
    step: number;
    weight: number;
  }>;
  estimator: {
    baseline: string;
    eps: number;
    estimator: string;
    normalize_std: boolean;
    singleton: string;
  };
  groups: Array<{
    advantages: number;
    group: {
      by: string;
      deviation: number;
      id: number;
      mean: number;
      seat: string;
      size: number;
      source: string;
      spread: boolean;
      task: string;
    };
    reward: number;
    samples: number;
    share: number;
    size: number;
    step: number;
    weight: number;
  }>;
  samples: number;
  step: number;
  tasks: Array<{
    advantages: number;
    reward: number;
    samples: number;
    share: number;
    size: number;
    step: number;
    task: {
      groups: Array<{
        id: number;
        seat: string;
        weight: number;
      }>;
      source: string;
      task: string;
    };
    weight: number;
  }>;
};

/** Answer of `runs/0/groups/2/0`. */
export type Group = {
  estimator: {
    baseline: string;
    eps: number;
    estimator: string;
    normalize_std: boolean;
    singleton: string;
  };
  group: {
    by: string;
    deviation: number;
    id: number;
    mean: number;
    seat: string;
    size: number;
    source: string;
    spread: boolean;
    task: string;
  };
  groups: number;
  question: string;
  samples: Array<{
    answer: string;
    cut: boolean;
    deviation: null;
    equal: number;
    error: null | string;
    index: number;
    parts: Array<{
      name: string;
      value: number;
    }>;
    path: number[];
    reply: string;
    same: number;
    sample: {
      arithmetic: {
        advantage: number;
        centered: number;
        deviation: number;
        relative: number;
        unit: number;
      };
      record: {
        advantage: number;
        episode: number;
        group: number;
        policy: string;
        reward: number;
        turn: number;
      };
    };
    score: number;
    seat: string;
    solved: boolean;
  }>;
  step: number;
  weight: number;
};

/** Answer of `compare?runs=0,1`. */
export type Comparison = {
  hashes: Array<{
    equal: boolean;
    key: string;
    values: string[];
  }>;
  keys: unknown[];
  pairs: Array<{
    difference: null;
    gain: null;
    reason: string;
    runs: number[];
  }>;
  runs: Array<{
    after: {
      high: number;
      low: number;
      mean: number;
    } | null;
    algorithm: string;
    before: {
      high: number;
      low: number;
      mean: number;
    } | null;
    name: string;
    notices: number;
    orchestra: string;
    problem: null;
    progress: null;
    r: string;
    seed: number;
    state: string;
    step: number;
    steps: number;
    tracking: unknown[];
  }>;
  seeds: Array<{
    after: (null | number)[];
    interval: null;
    members: number[];
    note: null;
    text: unknown[];
  }>;
};
