// The functions of NCCL that are used, for tests: ranks are threads of one process, and memory is that of the host.
// Everything that a caller of NCCL may not do is an error here: arguments out of range, a send outside a group, bytes that
// are not as many as the other side expects, a use after an abort.
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

enum Code { Success = 0, System = 2, Argument = 4, Usage = 5, Remote = 6, InProgress = 7 };

struct Id {
  char bytes[128];
};

struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

struct Group {
  int size = 0, joined = 0;
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;
};

struct Receive {
  void* to;
  size_t bytes;
  int from;
};

struct Comm {
  Group* group = nullptr;
  int rank = 0;
  bool aborted = false, finalized = false;
  std::vector<Receive> pending;
  int failure = Success;
};

std::mutex mutex;
std::map<std::string, Group*> groups;
std::vector<std::string> calls;
std::string mode;
unsigned ids = 0;
thread_local int depth = 0;
thread_local Comm* grouped = nullptr;

void say(int rank, const std::string& what) { calls.push_back(std::to_string(rank) + " " + what); }

bool dead(Comm* comm) {
  if (!comm->aborted) return false;
  say(comm->rank, "use after abort");
  return true;
}

int transfer(Comm* comm, size_t bytes, int type, int peer, const char* what) {
  say(comm->rank, std::string(what) + " " + std::to_string(bytes) + " " + std::to_string(peer));
  if (dead(comm) || depth == 0) return Usage;
  if (type != 1 || peer < 0 || peer >= comm->group->size || peer == comm->rank) return Argument;
  grouped = comm;
  return Success;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22703;
  return Success;
}

const char* ncclGetErrorString(int code) {
  switch (code) {
    case System: return "unhandled system error";
    case Argument: return "invalid argument";
    case Usage: return "invalid usage";
    case Remote: return "remote process exited or there was a network error";
    default: return "another error";
  }
}

int ncclGetUniqueId(Id* id) {
  std::lock_guard<std::mutex> lock(mutex);
  say(0, "id");
  std::memset(id->bytes, 7, sizeof id->bytes);
  std::snprintf(id->bytes, sizeof id->bytes, "group %u", ids++);
  return Success;
}

int ncclCommInitRankConfig(Comm** comm, int size, Id id, int rank, Config* config) {
  std::lock_guard<std::mutex> lock(mutex);
  say(rank, "init " + std::to_string(size));
  if (config->size != 24 || config->magic != 0xcafebeef || config->version != 21400) return Argument;
  if (config->blocking != 0 || rank < 0 || rank >= size || id.bytes[127] != 7) return Argument;
  Group*& group = groups[id.bytes];
  if (!group) group = new Group();
  if (group->size != 0 && group->size != size) return Argument;
  group->size = size;
  group->joined++;
  *comm = new Comm();
  (*comm)->group = group;
  (*comm)->rank = rank;
  return InProgress;
}

int ncclCommGetAsyncError(Comm* comm, int* state) {
  std::lock_guard<std::mutex> lock(mutex);
  if (dead(comm)) return Usage;
  if (mode == "fail") comm->failure = Remote;
  std::vector<Receive> rest;
  for (Receive& receive : comm->pending) {
    auto& mail = comm->group->mail[{receive.from, comm->rank}];
    if (mail.empty() || mode == "hang") {
      rest.push_back(receive);
      continue;
    }
    if (mail.front().size() != receive.bytes) comm->failure = Usage;
    else std::memcpy(receive.to, mail.front().data(), receive.bytes);
    mail.pop_front();
  }
  comm->pending = rest;
  bool waits = comm->group->joined < comm->group->size || !rest.empty();
  *state = comm->failure != Success ? comm->failure : waits ? InProgress : Success;
  return Success;
}

int ncclGroupStart() {
  depth++;
  return Success;
}

int ncclSend(const void* from, size_t bytes, int type, int peer, Comm* comm, void*) {
  std::lock_guard<std::mutex> lock(mutex);
  int code = transfer(comm, bytes, type, peer, "send");
  if (code != Success) return code;
  const char* start = static_cast<const char*>(from);
  comm->group->mail[{comm->rank, peer}].emplace_back(start, start + bytes);
  return Success;
}

int ncclRecv(void* to, size_t bytes, int type, int peer, Comm* comm, void*) {
  std::lock_guard<std::mutex> lock(mutex);
  int code = transfer(comm, bytes, type, peer, "receive");
  if (code != Success) return code;
  comm->pending.push_back({to, bytes, peer});
  return Success;
}

int ncclGroupEnd() {
  std::lock_guard<std::mutex> lock(mutex);
  if (depth-- != 1) return Usage;
  if (!grouped) return Success;
  say(grouped->rank, "group");
  grouped = nullptr;
  return InProgress;
}

int ncclCommFinalize(Comm* comm) {
  std::lock_guard<std::mutex> lock(mutex);
  say(comm->rank, "finalize");
  if (dead(comm)) return Usage;
  comm->finalized = true;
  return InProgress;
}

int ncclCommDestroy(Comm* comm) {
  std::lock_guard<std::mutex> lock(mutex);
  say(comm->rank, comm->finalized ? "destroy" : "destroy before finalize");
  comm->aborted = true;
  return Success;
}

int ncclCommAbort(Comm* comm) {
  std::lock_guard<std::mutex> lock(mutex);
  say(comm->rank, "abort");
  comm->aborted = true;
  return Success;
}

// Makes transfers hang or fail.
void fake_mode(const char* name) {
  std::lock_guard<std::mutex> lock(mutex);
  mode = name;
}

// Writes the calls so far, one a line.
void fake_calls(char* out, size_t room) {
  std::lock_guard<std::mutex> lock(mutex);
  std::string all;
  for (const std::string& call : calls) all += call + "\n";
  std::snprintf(out, room, "%s", all.c_str());
}
}
